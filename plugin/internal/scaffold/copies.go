package scaffold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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

// sourceNotes returns the commands that let the operator read sources.
func sourceNotes(sources []v1alpha1.Source) notes {
	var n notes
	n.add("The operator needs the right to get each source:")
	for _, s := range sources {
		group, _ := schema.ParseGroupVersion(s.APIVersion)
		resource := resourceOf(group.WithKind(s.Kind))
		role := objectName("nstpl-source", s.Name)
		n.add("  kubectl create role %s -n %s --verb=get --resource=%s --resource-name=%s", role, s.Namespace,
			resource, s.Name)
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

// resourceOf returns the resource of a kind, which it guesses without a cluster: "gateways" for Gateway.
func resourceOf(kind schema.GroupVersionKind) schema.GroupResource {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	guessed := resource.GroupResource()
	if name := strings.ToLower(kind.Kind); vowelAndY.MatchString(name) { // of these, meta makes "gatewaies"
		guessed.Resource = name + "s"
	}
	return guessed
}

var vowelAndY = regexp.MustCompile(`[aeiou]y$`)

// metadataFields are the fields of namespaceMetadata.
var metadataFields = []string{"labels", "annotations"}

// addMetadata makes a template set a label or an annotation of the namespaces that it selects: field is one of
// metadataFields.
func (t *template) addMetadata(field, key, value string) {
	if t.metadata == nil {
		t.metadata = map[string]map[string]string{"labels": {}, "annotations": {}}
	}
	t.metadata[field][key] = value
}

// convertMetadata makes a template set the labels and annotations in a JSON value of another tool, in which a pattern
// matches variables. The notes about those that cannot be converted begin with what.
func (t *template) convertMetadata(
	metadata map[string]any, what string, pattern *regexp.Regexp, value func(match []string) (part, error),
) {
	for _, field := range metadataFields {
		entries := at[map[string]any](metadata, field)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if _, isSet := t.metadata[field][key]; isSet {
				t.add(leftOut+"%s%s: an earlier value wins", what, key)
				continue
			}
			text, err := substitute(fmt.Sprint(entries[key]), pattern, value)
			if err != nil {
				t.fail(&t.notes, what+key, err)
				continue
			}
			t.addMetadata(field, key, text)
		}
	}
}

// yield removes the labels and annotations that a winner sets in all namespaces that the template selects.
func (t *template) yield(winning map[string]map[string]string, winner string) {
	for _, field := range metadataFields {
		for _, key := range slices.Sorted(maps.Keys(t.metadata[field])) {
			if _, has := winning[field][key]; has {
				t.add(leftOut+"%s %s of the namespaces: the value of %s wins", strings.TrimSuffix(field, "s"), key, winner)
				delete(t.metadata[field], key)
			}
		}
	}
}

// namespaceMetadata returns labels and annotations as a template declares them.
func namespaceMetadata(metadata map[string]map[string]string) *v1alpha1.NamespaceMetadata {
	return &v1alpha1.NamespaceMetadata{Labels: metadata["labels"], Annotations: metadata["annotations"]}
}

// keepValidMetadata removes the labels and annotations of namespaces that a template cannot set.
func (t *template) keepValidMetadata(ctx context.Context) {
	for _, field := range metadataFields {
		entries := t.metadata[field]
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			single := namespaceMetadata(map[string]map[string]string{field: {key: entries[key]}})
			problems := vet(ctx, v1alpha1.NamespaceTemplateSpec{NamespaceMetadata: single}, nil)
			if len(problems) > 0 {
				t.lose(&t.notes, "%s %s of the namespaces: %s", strings.TrimSuffix(field, "s"), key, problems[0].Message)
				delete(entries, key)
			}
		}
	}
}
