package vetting

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/watch"
)

var roleKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}

// outline contains what can be derived from a template without compiling it. Disabled templates have one, too, since
// they may be enabled later.
type outline struct {
	name string
	// namespaces selects the namespaces of the template.
	namespaces requirements
	objects    []render.Declaration
	// bindsAny is true if an overlay may change the Role to which a RoleBinding refers.
	bindsAny bool
	// selects are the labels by which the template selects namespaces.
	selects []string
	// usedKeys are the labels and annotations of namespaces from which the template renders, and setKeys those that it
	// sets.
	usedKeys, setKeys []render.MetadataKey
}

func outlineOf(template *v1alpha1.NamespaceTemplate) *outline {
	o := &outline{
		name: template.Name, namespaces: requirementsOf(template.Spec.Namespaces), objects: declarationsOf(template),
		selects: match.SelectorKeys(&template.Spec), usedKeys: render.UsedKeys(&template.Spec),
		setKeys: keysSetBy(template),
	}
	o.bindsAny = patches(template) && slices.ContainsFunc(o.objects, isBinding)
	return o
}

// sets reports whether the template sets a label of namespaces.
func (o *outline) sets(label string) bool {
	return slices.Contains(o.setKeys, render.MetadataKey{Field: render.Labels, Key: label})
}

// binds reports whether a RoleBinding of the template may refer to a Role of a name, which may contain tokens.
func (o *outline) binds(role string) bool {
	return o.bindsAny || slices.ContainsFunc(o.objects, func(object render.Declaration) bool {
		return object.Binds != "" && render.MayCoincide(object.Binds, role)
	})
}

// Outlines has what can be derived from each template without compiling it, since a template is vetted together with
// all others: an outline for each revision that is in force. It follows the templates, so that a request does not read
// all of them.
type Outlines struct {
	// synced reports whether all templates of the start are known.
	synced func() bool
	// templates reads the templates from the cache.
	templates client.Reader
	revisions *revisions.Reader

	mu     sync.Mutex
	byName map[string]*outlined
}

// outlined is a template of which the outlines are not needed yet, or else its outlines.
type outlined struct {
	template *v1alpha1.NamespaceTemplate
	outlines []*outline
	// The outlines are those of a template with this UID, generation and names of revisions.
	uid        types.UID
	generation int64
	revisions  []string
}

// NewOutlines returns the outlines of the templates in a cache.
func NewOutlines(ctx context.Context, templates cache.Cache, reader *revisions.Reader) (*Outlines, error) {
	o := &Outlines{templates: templates, revisions: reader, byName: map[string]*outlined{}}
	informer, err := templates.GetInformer(ctx, &v1alpha1.NamespaceTemplate{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registered, err := informer.AddEventHandler(watch.ChangeHandler(o.changed))
	if err != nil {
		return nil, err
	}
	o.synced = registered.HasSynced
	return o, nil
}

// inForce returns the revisions of a template that are in force, which must not be changed.
func (o *Outlines) inForce(ctx context.Context, name string) ([]*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	if err := o.templates.Get(ctx, client.ObjectKey{Name: name}, template, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read template %s: %w", name, err)
	}
	return o.revisions.InForce(ctx, template)
}

// changed follows a change of a template, which is nil after its deletion.
func (o *Outlines) changed(before, template *v1alpha1.NamespaceTemplate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if template == nil {
		delete(o.byName, before.Name)
		return
	}
	known := o.byName[template.Name]
	names := revisions.Names(template)
	if known != nil && known.template == nil && known.uid == template.UID &&
		known.generation == template.Generation && slices.Equal(known.revisions, names) {
		return
	}
	o.byName[template.Name] = &outlined{
		template: template, uid: template.UID, generation: template.Generation, revisions: names,
	}
}

// except returns the outlines of all templates but the named one. It waits until all templates of the start are known.
func (o *Outlines) except(ctx context.Context, name string) ([]*outline, error) {
	if !toolscache.WaitForCacheSync(ctx.Done(), o.synced) {
		return nil, fmt.Errorf("list the other templates: %w", ctx.Err())
	}
	for {
		others, open := o.derived(name)
		if len(open) == 0 {
			return others, nil
		}
		for known, template := range open {
			if err := o.derive(ctx, known, template); err != nil {
				return nil, err
			}
		}
	}
}

// derived returns the outlines of all templates but the named one, and the templates of which the outlines are not
// derived yet.
func (o *Outlines) derived(name string) ([]*outline, map[*outlined]*v1alpha1.NamespaceTemplate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	others, open := make([]*outline, 0, len(o.byName)), map[*outlined]*v1alpha1.NamespaceTemplate{}
	for of, known := range o.byName {
		switch {
		case of == name:
		case known.template != nil:
			open[known] = known.template
		default:
			others = append(others, known.outlines...)
		}
	}
	return others, open
}

// derive derives the outlines of a template. It may read revisions, so the lock is not held meanwhile.
func (o *Outlines) derive(ctx context.Context, known *outlined, template *v1alpha1.NamespaceTemplate) error {
	inForce, err := o.revisions.InForce(ctx, template)
	if err != nil {
		return err
	}
	outlines := make([]*outline, 0, len(inForce))
	for _, revision := range inForce {
		outlines = append(outlines, outlineOf(revision))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known.outlines, known.template = outlines, nil
	return nil
}

// SetBy returns the first of some labels of namespaces that a template sets, and the template whose name comes first in
// the alphabet. It returns "" if no template sets any.
func (o *Outlines) SetBy(ctx context.Context, labels []string) (label, template string, err error) {
	if len(labels) == 0 {
		return "", "", nil
	}
	all, err := o.except(ctx, "")
	if err != nil {
		return "", "", err
	}
	slices.SortFunc(all, func(a, b *outline) int { return strings.Compare(a.name, b.name) })
	for _, label := range labels {
		for _, one := range all {
			if one.sets(label) {
				return label, one.name, nil
			}
		}
	}
	return "", "", nil
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

// overlaps returns, for each other template that may declare an object of this one, the first such object. others has
// the outlines of a template one after the other.
func overlaps(template *v1alpha1.NamespaceTemplate, others []*outline) []overlap {
	own, selects := namesOf(declarationsOf(template)), requirementsOf(template.Spec.Namespaces)
	var all []overlap
	for _, other := range others {
		if len(all) > 0 && all[len(all)-1].other == other.name {
			continue // found in another revision
		}
		i := slices.IndexFunc(other.objects, func(object render.Declaration) bool {
			return own[object.GroupKind()].mayHave(object.Name)
		})
		if i >= 0 && !disjoint(selects, other.namespaces) {
			all = append(all, overlap{other.objects[i], other.name, other.name < template.Name})
		}
	}
	return all
}

// requirements are those of a selector, all of which a namespace meets.
type requirements []requirement

// requirement is a labels.Requirement whose values can be read without a copy: a template is compared with all others.
type requirement struct {
	key      string
	operator selection.Operator
	values   []string
}

// requirementsOf returns the requirements of a selector. An invalid one is not stored, and has none.
func requirementsOf(selector v1alpha1.NamespaceSelector) requirements {
	parsed, err := match.Selector(selector)
	if err != nil {
		return nil
	}
	var all requirements
	parts, _ := parsed.Requirements()
	for i := range parts {
		all = append(all, requirement{parts[i].Key(), parts[i].Operator(), parts[i].ValuesUnsorted()})
	}
	return all
}

// disjoint reports whether certainly no namespace can be selected by both selectors.
func disjoint(a, b requirements) bool {
	for i := range a {
		for j := range b {
			if a[i].key == b[j].key && (contradict(&a[i], &b[j]) || contradict(&b[j], &a[i])) {
				return true
			}
		}
	}
	return false
}

// contradict reports whether certainly no label value meets both requirements. It considers requirements needs that are
// met only if the label exists.
func contradict(needs, other *requirement) bool {
	switch needs.operator {
	case selection.Exists:
		return other.operator == selection.DoesNotExist
	case selection.In, selection.Equals, selection.DoubleEquals:
		return !slices.ContainsFunc(needs.values, other.mayAllow)
	}
	return false
}

// mayAllow reports whether a label with a value may meet the requirement.
func (r *requirement) mayAllow(value string) bool {
	switch r.operator {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return slices.Contains(r.values, value)
	case selection.NotIn, selection.NotEquals:
		return !slices.Contains(r.values, value)
	case selection.DoesNotExist:
		return false
	}
	return true
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
	selects := requirementsOf(v.updated.Spec.Namespaces)
	return slices.ContainsFunc(v.others, func(other *outline) bool {
		return other.declares(role) && !disjoint(selects, other.namespaces)
	})
}
