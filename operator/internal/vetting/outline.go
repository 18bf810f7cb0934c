package vetting

import (
	"context"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

var roleKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}

// outline contains what can be derived from a template without compiling it. Disabled templates have one, too, since
// they may be enabled later.
type outline struct {
	name       string
	uid        types.UID
	generation int64
	// namespaces selects the namespaces of the template.
	namespaces v1alpha1.NamespaceSelector
	objects    []render.Declaration
	// bindsAny is true if an overlay may change the Role to which a RoleBinding refers.
	bindsAny bool
}

func outlineOf(template *v1alpha1.NamespaceTemplate) *outline {
	o := &outline{
		name: template.Name, uid: template.UID, generation: template.Generation,
		namespaces: template.Spec.Namespaces, objects: render.Declarations(template),
	}
	o.bindsAny = patches(template) && slices.ContainsFunc(o.objects, isBinding)
	return o
}

// binds reports whether a RoleBinding of the template may refer to a Role of a name, which may contain tokens.
func (o *outline) binds(role string) bool {
	return o.bindsAny || slices.ContainsFunc(o.objects, func(object render.Declaration) bool {
		return object.Binds != "" && render.MayCoincide(object.Binds, role)
	})
}

// outlines caches the outline of the current generation of each template. The zero value is an empty cache.
type outlines struct {
	mu     sync.Mutex
	byName map[string]*outline
}

// read returns the outlines of all templates but the named one.
func (o *outlines) read(ctx context.Context, templates client.Reader, except string) ([]*outline, error) {
	list := &v1alpha1.NamespaceTemplateList{}
	if err := templates.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	current := make(map[string]*outline, len(list.Items))
	others := make([]*outline, 0, len(list.Items))
	for i := range list.Items {
		template := &list.Items[i]
		known := o.byName[template.Name]
		if known == nil || known.uid != template.UID || known.generation != template.Generation {
			known = outlineOf(template)
		}
		current[template.Name] = known
		if template.Name != except {
			others = append(others, known)
		}
	}
	o.byName = current
	return others, nil
}

// names contains the names of a template's objects of one kind.
type names struct {
	constant sets.Set[string]
	// tokens contains the names with tokens, which differ between namespaces.
	tokens []string
}

func namesOf(objects []render.Declaration) map[schema.GroupKind]*names {
	all := map[schema.GroupKind]*names{}
	for _, object := range objects {
		of := all[object.GroupKind()]
		if of == nil {
			of = &names{constant: sets.Set[string]{}}
			all[object.GroupKind()] = of
		}
		if _, constant := render.Literal(object.Name); constant {
			of.constant.Insert(object.Name)
		} else {
			of.tokens = append(of.tokens, object.Name)
		}
	}
	return all
}

// mayHave reports whether one of the names may be rendered as another name, which may contain tokens, in some
// namespace.
func (n *names) mayHave(name string) bool {
	if n == nil {
		return false
	}
	coincides := func(own string) bool { return render.MayCoincide(own, name) }
	if slices.ContainsFunc(n.tokens, coincides) {
		return true
	}
	if _, constant := render.Literal(name); constant {
		return n.constant.Has(name)
	}
	return slices.ContainsFunc(n.constant.UnsortedList(), coincides)
}

// overlap is an object that two templates may declare for one namespace.
type overlap struct {
	object render.Declaration
	other  string
	// overrides is true if this template's object is populated, since its name comes later in the alphabet. Otherwise
	// the other template's object is.
	overrides bool
}

// overlaps returns, for each other template that may declare an object of this one, the first such object.
func overlaps(template *v1alpha1.NamespaceTemplate, others []*outline) []overlap {
	own := namesOf(render.Declarations(template))
	var all []overlap
	for _, other := range others {
		i := slices.IndexFunc(other.objects, func(object render.Declaration) bool {
			return own[object.GroupKind()].mayHave(object.Name)
		})
		if i >= 0 && !disjoint(template.Spec.Namespaces, other.namespaces) {
			all = append(all, overlap{other.objects[i], other.name, other.name < template.Name})
		}
	}
	return all
}

// disjoint reports whether certainly no namespace can be selected by both selectors.
func disjoint(a, b v1alpha1.NamespaceSelector) bool {
	first, errA := match.Selector(a)
	second, errB := match.Selector(b)
	if errA != nil || errB != nil {
		return false
	}
	of, _ := first.Requirements()
	with, _ := second.Requirements()
	return slices.ContainsFunc(of, func(r labels.Requirement) bool {
		return slices.ContainsFunc(with, func(other labels.Requirement) bool {
			return r.Key() == other.Key() && (contradict(r, other) || contradict(other, r))
		})
	})
}

// contradict reports whether no label value meets both requirements. It considers requirements needs that are met only
// if the label exists.
func contradict(needs, other labels.Requirement) bool {
	switch needs.Operator() {
	case selection.Exists:
		return other.Operator() == selection.DoesNotExist
	case selection.In, selection.Equals, selection.DoubleEquals:
		return !slices.ContainsFunc(needs.ValuesUnsorted(), func(value string) bool {
			return other.Matches(labels.Set{other.Key(): value})
		})
	}
	return false
}

// declares reports whether a template may declare a Role of a name.
func (o *outline) declares(role string) bool {
	return slices.ContainsFunc(o.objects, func(object render.Declaration) bool {
		return object.GroupKind() == roleKind && render.MayCoincide(object.Name, role)
	})
}

// declaresRole reports whether another template that may select the same namespaces may declare a Role of a name. An
// edit of either selector is vetted again.
func (v *review) declaresRole(role string) bool {
	return slices.ContainsFunc(v.others, func(other *outline) bool {
		return other.declares(role) && !disjoint(v.updated.Spec.Namespaces, other.namespaces)
	})
}
