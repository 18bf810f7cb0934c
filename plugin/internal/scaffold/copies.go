package scaffold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// maxSources is the number of sources of a template at most, by its schema.
const maxSources = 16

var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// addSource makes a template copy an object. It returns an error if templates cannot copy it.
func (t *template) addSource(s v1alpha1.Source) error {
	group, _ := schema.ParseGroupVersion(s.APIVersion)
	isSame := func(other v1alpha1.Source) bool {
		return other.Kind == s.Kind && other.Namespace == s.Namespace && other.Name == s.Name && other.As == s.As
	}
	switch {
	case s.APIVersion == "" || s.Kind == "" || s.Namespace == "" || s.Name == "":
		return remedy{errors.New("templates copy an object by its apiVersion, kind, namespace and name: list it in spec.sources")}
	case group.Group == rbacv1.GroupName:
		return remedy{errors.New("templates do not copy objects of RBAC: write the object into the template")}
	case !isName(s.Namespace) || len(validation.IsDNS1123Subdomain(s.Name)) > 0 || !kindName.MatchString(s.Kind):
		return remedy{errors.New("the kind, the namespace or the name of the object that is copied is not fixed: list each " +
			"object in spec.sources")}
	case slices.ContainsFunc(t.sources, isSame):
		return nil
	case len(t.sources) == maxSources:
		return remedy{fmt.Errorf("a template copies at most %d objects: write another template", maxSources)}
	}
	if s.As == s.Name {
		s.As = ""
	}
	t.sources = append(t.sources, s)
	return nil
}

// sourceFields returns the sources as JSON values.
func (t *template) sourceFields() []any {
	var sources []any
	for _, s := range t.sources {
		fields := map[string]any{"apiVersion": s.APIVersion, "kind": s.Kind, "namespace": s.Namespace, "name": s.Name}
		if s.As != "" {
			fields["as"] = s.As
		}
		if len(s.Labels) > 0 {
			fields["labels"] = values(s.Labels)
		}
		if len(s.Annotations) > 0 {
			fields["annotations"] = values(s.Annotations)
		}
		sources = append(sources, fields)
	}
	return sources
}

// sourceNotes returns the commands that let the operator read sources.
func sourceNotes(sources []v1alpha1.Source) notes {
	var n notes
	n.add("The operator needs the right to get each source:")
	for _, s := range sources {
		group, _ := schema.ParseGroupVersion(s.APIVersion)
		plural, _ := meta.UnsafeGuessKindToResource(group.WithKind(s.Kind))
		role := objectName("nstpl-source", s.Name)
		n.add("  kubectl create role %s -n %s --verb=get --resource=%s --resource-name=%s", role, s.Namespace,
			plural.GroupResource(), s.Name)
		n.add("  kubectl create rolebinding %s -n %s --role=%[1]s --serviceaccount=%[3]s:%s", role, s.Namespace,
			v1alpha1.OperatorNamespace, v1alpha1.OperatorServiceAccount)
	}
	if slices.ContainsFunc(sources, func(s v1alpha1.Source) bool { return s.Kind == "Secret" }) {
		n.add("To populate Secrets, it also needs:")
		n.add("  kubectl create clusterrole nstpl-operator-secrets --verb=list,watch,create,patch,delete --resource=secrets")
		n.add("  kubectl label clusterrole nstpl-operator-secrets %s=true", v1alpha1.AggregateLabel)
	}
	return n
}

// addMetadata makes a template set a label or an annotation of the namespaces that it selects.
func (t *template) addMetadata(isLabel bool, key, value string) {
	if isLabel {
		t.labels = withEntry(t.labels, key, value)
	} else {
		t.annotations = withEntry(t.annotations, key, value)
	}
}

func withEntry(entries map[string]string, key, value string) map[string]string {
	if entries == nil {
		entries = map[string]string{}
	}
	entries[key] = value
	return entries
}

// keepValidMetadata removes the labels and annotations of namespaces that a template cannot set.
func (t *template) keepValidMetadata(ctx context.Context) {
	for _, entries := range []struct {
		what   string
		values map[string]string
		field  func(map[string]string) *v1alpha1.NamespaceMetadata
	}{
		{"label", t.labels, func(v map[string]string) *v1alpha1.NamespaceMetadata {
			return &v1alpha1.NamespaceMetadata{Labels: v}
		}},
		{"annotation", t.annotations, func(v map[string]string) *v1alpha1.NamespaceMetadata {
			return &v1alpha1.NamespaceMetadata{Annotations: v}
		}},
	} {
		for _, key := range slices.Sorted(maps.Keys(entries.values)) {
			single := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "draft"}}
			single.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
			single.Spec.NamespaceMetadata = entries.field(map[string]string{key: entries.values[key]})
			problems := render.Vet(ctx, single, nil)
			if len(problems) == 0 {
				continue
			}
			t.lose(&t.notes, "%s %s of the namespaces: %s", entries.what, key, problems[0].Message)
			delete(entries.values, key)
		}
	}
}

// metadataFields returns namespaceMetadata as a JSON value.
func (t *template) metadataFields() map[string]any {
	fields := map[string]any{}
	if len(t.labels) > 0 {
		fields["labels"] = values(t.labels)
	}
	if len(t.annotations) > 0 {
		fields["annotations"] = values(t.annotations)
	}
	return fields
}

func values(entries map[string]string) map[string]any {
	fields := map[string]any{}
	for key, value := range entries {
		fields[key] = value
	}
	return fields
}
