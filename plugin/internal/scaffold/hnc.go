package scaffold

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

const (
	hncGroup       = "hnc.x-k8s.io"
	hncDepthSuffix = ".tree.hnc.x-k8s.io/depth"
	hncInherited   = "hnc.x-k8s.io/inherited-from"
	hncPropagate   = "propagate.hnc.x-k8s.io/"
)

var (
	hncHierarchy     = schema.GroupKind{Group: hncGroup, Kind: "HierarchyConfiguration"}
	hncAnchor        = schema.GroupKind{Group: hncGroup, Kind: "SubnamespaceAnchor"}
	hncQuota         = schema.GroupKind{Group: hncGroup, Kind: "HierarchicalResourceQuota"}
	hncConfiguration = schema.GroupKind{Group: hncGroup, Kind: "HNCConfiguration"}
)

// addPropagatedByHNC adds the objects that HNC propagates, without the copies, to its own objects.
func addPropagatedByHNC(
	ctx context.Context, r reader, objects []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	for _, resource := range slices.SortedFunc(maps.Keys(propagated(objects)), byName) {
		if resource.Resource == "secrets" {
			continue // their values must not get into files, so they are not even read
		}
		kind, err := r.Mapper.KindForWithContext(ctx, resource.WithVersion(""))
		if err != nil {
			return nil, err
		}
		mapping, err := r.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, err
		}
		found, err := r.ListObjects(ctx, mapping.Resource, "", "!"+hncInherited)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// propagated returns the resources that HNC propagates. Those with the value true are propagated only if an annotation
// of the object asks for it.
func propagated(objects []*unstructured.Unstructured) map[schema.GroupResource]bool {
	resources := map[schema.GroupResource]bool{
		{Group: rbacv1.GroupName, Resource: "roles"}: false, {Group: rbacv1.GroupName, Resource: "rolebindings"}: false,
	}
	maps.Copy(resources, configured(objects))
	return resources
}

// configured returns the resources that HNCConfigurations make HNC propagate, as propagated does.
func configured(objects []*unstructured.Unstructured) map[schema.GroupResource]bool {
	resources := map[schema.GroupResource]bool{}
	for _, configuration := range objectsOf(objects, hncConfiguration) {
		for _, fields := range each(configuration.Object, "spec", "resources") {
			resource := schema.GroupResource{Group: at[string](fields, "group"), Resource: at[string](fields, "resource")}
			switch at[string](fields, "mode") {
			case "Propagate", "":
				resources[resource] = false
			case "AllowPropagate":
				resources[resource] = true
			}
		}
	}
	return resources
}

// hnc is the hierarchy of HNC while it is converted.
type hnc struct{ *hierarchy }

// fromHNC converts a hierarchy of namespaces to PolicySpaces, and what each namespace propagates to a template.
func fromHNC(ctx context.Context, objects []*unstructured.Unstructured, _ *metav1.LabelSelector) *draft {
	h := hnc{newHierarchy("HNC")}
	configurations, anchors := objectsOf(objects, hncHierarchy), objectsOf(objects, hncAnchor)
	quotas := objectsOf(objects, hncQuota)
	parents := map[string]string{}
	for _, configuration := range configurations {
		parents[configuration.GetNamespace()] = at[string](configuration.Object, "spec", "parent")
		h.setParent(configuration.GetNamespace(), parents[configuration.GetNamespace()])
	}
	for _, ns := range objectsOf(objects, namespaceKind) {
		parents[ns.GetName()] = ns.GetAnnotations()["hnc.x-k8s.io/subnamespace-of"]
	}
	if len(configurations)+len(anchors)+len(quotas) == 0 {
		return nil
	}
	anchors = h.claimed(anchors, parents, func(anchor *unstructured.Unstructured) bool {
		return slices.Contains([]string{"Conflict", "Forbidden"}, at[string](anchor.Object, "status", "status"))
	})
	h.addSpaces(quotas)
	h.loseCascading(configurations, anchors)
	for _, object := range slices.Concat(configurations, anchors, quotas) {
		h.nameFields(object, subjectOf(object), "parent", "allowCascadingDeletion", "labels", "annotations", "hard")
	}
	if len(objectsOf(objects, hncConfiguration)) == 0 {
		h.item("hncconfiguration").need(nil, "it is not among the objects, so only Roles and RoleBindings were converted")
	}
	h.addPropagated(ctx, objects)
	h.addMetadata(ctx, configurations, anchors)
	return h.draft
}

// subjectOf returns the namespace that a HierarchyConfiguration or an anchor is about.
func subjectOf(object *unstructured.Unstructured) string {
	if kindOf(object) == hncAnchor {
		return object.GetName()
	}
	return object.GetNamespace()
}

// loseCascading lists the namespaces that HNC deletes with their parents.
func (h hnc) loseCascading(configurations, anchors []*unstructured.Unstructured) {
	for _, object := range slices.Concat(configurations, anchors) {
		if at[bool](object.Object, "spec", "allowCascadingDeletion") {
			h.item("namespace/%s", subjectOf(object)).lose(nil, "allowCascadingDeletion: namespaces are not deleted with "+
				"their policy space, only by nstpl-sync, if a tree no longer declares them, or at the end of their "+
				"selfService.maxAge")
		}
	}
}

// addMetadata adds a template for the labels and annotations that HNC sets on a namespace and its descendants. Those of
// the farthest ancestor win in HNC.
func (h hnc) addMetadata(ctx context.Context, configurations, anchors []*unstructured.Unstructured) {
	templates := map[string]*template{}
	for _, object := range slices.Concat(configurations, anchors) {
		name := subjectOf(object)
		if !isName(name) {
			continue
		}
		for _, field := range metadataFields {
			for _, pair := range each(object.Object, "spec", field) {
				value, _ := joinParts(part{text: at[string](pair, "value")}) // fails only for tokens
				t := h.templateOf(templates, name, "metadata",
					"The labels and annotations that HNC sets on namespace %s and its descendants.")
				t.addMetadata(field, at[string](pair, "key"), value)
			}
		}
	}
	for name, t := range templates {
		for above := h.parents[name]; above != ""; above = h.parents[above] {
			if winner := templates[above]; winner != nil {
				t.yield(winner.metadata, "an ancestor")
			}
		}
	}
	h.addTemplates(ctx, templates)
}

// templateOf returns the template of a namespace, which it adds to templates if there is none. It selects the namespace
// and its descendants.
func (h hnc) templateOf(templates map[string]*template, namespace, suffix, note string) *template {
	t := templates[namespace]
	if t == nil {
		t = &template{item: h.item("namespace/%s", namespace), name: objectName(namespace, suffix), prune: true}
		t.add(note, namespace)
		if h.spaces[namespace] != nil {
			t.selectSpace(namespace)
		} else {
			t.require(in(corev1.LabelMetadataName, namespace))
		}
		templates[namespace] = t
	}
	return t
}

// addTemplates adds the templates of namespaces, without those that would have nothing but a first note.
func (h hnc) addTemplates(ctx context.Context, templates map[string]*template) {
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		if t := templates[name]; t.size() > 0 || len(t.notes) > 1 {
			h.addTemplate(ctx, *t)
		}
	}
}

// addPropagated adds a template for what each namespace propagates, and one for each object with an exception.
func (h hnc) addPropagated(ctx context.Context, objects []*unstructured.Unstructured) {
	resources := propagated(objects)
	templates, copies := map[string]*template{}, map[string]*template{}
	found := map[schema.GroupResource]bool{{Resource: "secrets"}: true}
	others := map[string][]string{} // by group, kinds of which the guessed plural is not one of the resources
	var exceptions []template
	for _, object := range objects {
		resource := resourceOf(object.GroupVersionKind())
		found[resource] = true
		optIn, isPropagated := resources[resource]
		from := object.GetNamespace()
		if guess := object.GetKind() + " (" + resource.Resource + ")"; !isPropagated && from != "" &&
			!slices.Contains(others[resource.Group], guess) {
			others[resource.Group] = append(others[resource.Group], guess)
		}
		switch {
		case object.GetLabels()[hncInherited] != "":
			continue // a copy
		case !isPropagated || h.spaces[from] == nil || isNotPropagated(object, optIn):
			continue
		}
		if survey.IsSecret(object) {
			h.addSecret(copies, object)
			continue
		}
		t := h.templateOf(templates, from, "",
			"What HNC propagates from namespace %s to its descendants. It is also declared for %[1]s itself.")
		o, ok := t.toDeclare(object)
		if !ok {
			continue
		}
		kept := h.relabel(&o)
		if selects, has := exceptionOf(object); has {
			exceptions = append(exceptions, h.exception(*t, o, selects))
			t = &exceptions[len(exceptions)-1]
		} else {
			t.objects = append(t.objects, o)
		}
		for _, key := range kept {
			t.undecided("%s: it still selects namespaces by HNC's label %s", o, key)
		}
	}
	h.addTemplates(ctx, templates)
	h.addTemplates(ctx, copies)
	for _, t := range exceptions {
		h.addTemplate(ctx, t)
	}
	h.needMissing(objects, found, others)
	hasSecrets := slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Secret"
	})
	if _, has := resources[schema.GroupResource{Resource: "secrets"}]; has && !hasSecrets {
		h.item("secrets").need(nil, "HNC propagates them, and this command does not read them: list each in spec.sources")
	}
}

// needMissing adds a need for each resource that HNCConfigurations name and of which no object was found. Objects have
// a kind, and its plural is a guess. So the need names the other kinds of the group: one of them may have this plural.
func (h hnc) needMissing(
	objects []*unstructured.Unstructured, found map[schema.GroupResource]bool, others map[string][]string,
) {
	for _, resource := range slices.SortedFunc(maps.Keys(configured(objects)), byName) {
		kinds := others[resource.Group]
		switch {
		case found[resource] || resource.Resource == "":
		case len(kinds) == 0:
			h.item("%s", resource).need(nil, "no object was converted: none was read")
		default:
			h.item("%s", resource).need(nil, "no object was converted: none was read, unless it is the plural of one of these "+
				"kinds, for which another one was guessed: %s: declare objects of this kind by hand", strings.Join(kinds, ", "))
		}
	}
}

func byName(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }

// addSecret makes a template copy a Secret that HNC propagates. Its values do not get into the template. It is not the
// template with the other objects, which needs no right of the operator to read the Secret.
func (h hnc) addSecret(templates map[string]*template, secret *unstructured.Unstructured) {
	t := h.templateOf(templates, secret.GetNamespace(), "secrets",
		"The Secrets that HNC propagates from namespace %s to its descendants.")
	if _, has := exceptionOf(secret); has {
		t.need(&t.notes, "secret/%s: it is propagated to some descendants only: copy it by spec.sources of a template that "+
			"selects them", secret.GetName())
		return
	}
	t.copySecret(secret)
}

// relabel makes an object select namespaces by the labels of nstpl instead of HNC's. It returns the labels that it
// keeps, since a value has another meaning: a namespace is in the space of its name, with the distance 1 instead of 0.
func (h hnc) relabel(o *declared) []string {
	var kept []string
	o.relabel(func(key string, hasValue bool) string {
		tree, isDepth := strings.CutSuffix(key, hncDepthSuffix)
		switch {
		case isDepth && !hasValue && h.spaces[tree] != nil:
			return tree + v1alpha1.DepthLabelSuffix
		case isDepth:
			kept = append(kept, key)
		}
		return ""
	})
	return slices.Compact(slices.Sorted(slices.Values(kept)))
}

// isNotPropagated reports whether HNC propagates an object to no namespace, with the options of its manifests.
func isNotPropagated(object *unstructured.Unstructured, optIn bool) bool {
	annotations := object.GetAnnotations()
	none, noneErr := strconv.ParseBool(cmp.Or(annotations[hncPropagate+"none"], "false"))
	all, allErr := strconv.ParseBool(cmp.Or(annotations[hncPropagate+"all"], "false"))
	_, hasException := exceptionOf(object)
	_, isOfOpenShift := annotations["openshift.io/description"]
	secretTypes := []any{string(corev1.SecretTypeServiceAccountToken), "helm.sh/release.v1"}
	return noneErr != nil || allErr != nil || none || optIn && !hasException && !all || isOfOpenShift ||
		len(object.GetFinalizers()) > 0 || object.GetLabels()["cattle.io/creator"] == "norman" ||
		survey.IsSecret(object) && slices.Contains(secretTypes, object.Object["type"])
}

// exceptionOf returns the selector of an object that is propagated to some descendants only.
func exceptionOf(object *unstructured.Unstructured) (selector string, has bool) {
	annotations := object.GetAnnotations()
	var terms []string
	for tree := range strings.SplitSeq(annotations[hncPropagate+"treeSelect"], ",") {
		if tree = strings.TrimSpace(tree); tree != "" {
			terms = append(terms, tree+hncDepthSuffix)
		}
	}
	if labels := annotations[hncPropagate+"select"]; labels != "" {
		terms = append(terms, labels)
	}
	return strings.Join(terms, ","), len(terms) > 0
}

// exception returns the template for an object that is propagated to some descendants only.
func (h hnc) exception(of template, o declared, selects string) template {
	t := template{item: of.item, name: objectName(of.name, at[string](o.object, "metadata", "name")), prune: true}
	t.add("%s is propagated from namespace %s to some of its descendants: %s", o, of.name, selects)
	t.selectSpace(of.name)
	t.objects = []declared{o}
	parsed, err := labels.ParseToRequirements(selects)
	if err != nil {
		t.undecided("%s: the selector of the annotation is invalid", o)
		return t
	}
	for _, r := range parsed {
		required, ok := h.requirement(r)
		if !ok {
			t.undecided("%s: %s has no counterpart", o, r.String())
			continue
		}
		t.require(required)
	}
	return t
}

// requirement converts a requirement. Labels of trees become those of policy spaces. A namespace without children has
// no such label, so it is selected by its name.
func (h hnc) requirement(r labels.Requirement) (converted metav1.LabelSelectorRequirement, ok bool) {
	operator := metav1.LabelSelectorOperator(map[string]string{
		"in": "In", "=": "In", "==": "In", "notin": "NotIn", "!=": "NotIn", "exists": "Exists", "!": "DoesNotExist",
	}[string(r.Operator())])
	tree, isTree := strings.CutSuffix(r.Key(), hncDepthSuffix)
	isPresence := operator == metav1.LabelSelectorOpExists || operator == metav1.LabelSelectorOpDoesNotExist
	converted = metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.ValuesUnsorted()}
	switch {
	case !isTree:
		return converted, operator != ""
	case !isPresence: // the distances are not the same: a namespace is itself in the space of its name
		return converted, false
	case h.spaces[tree] != nil:
		converted.Key = tree + v1alpha1.DepthLabelSuffix
		return converted, true
	}
	converted = in(corev1.LabelMetadataName, tree)
	if operator == metav1.LabelSelectorOpDoesNotExist {
		converted.Operator = metav1.LabelSelectorOpNotIn
	}
	return converted, true
}
