package scaffold

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// decode returns the templates of a draft, as the API server would read them from the YAML.
func decode(t *testing.T, d *draft) []*v1alpha1.NamespaceTemplate {
	t.Helper()
	var templates []*v1alpha1.NamespaceTemplate
	for _, doc := range d.documents {
		text, err := output.CommentedYAML(doc.object, doc.comments)
		require.NoError(t, err)
		if doc.object["kind"] != "NamespaceTemplate" {
			continue
		}
		template := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, yaml.UnmarshalStrict(text, template), "%s", text)
		templates = append(templates, template)
	}
	return templates
}

func isDisabled(template *v1alpha1.NamespaceTemplate) bool {
	return match.DisabledReason(template) != ""
}

func selectorOf(t *testing.T, template *v1alpha1.NamespaceTemplate) string {
	t.Helper()
	selector, err := match.Selector(template.Spec.Namespaces)
	require.NoError(t, err)
	return selector.String()
}

// rendered returns the objects of a template for a namespace.
func rendered(t *testing.T, template *v1alpha1.NamespaceTemplate, values render.Values) []render.Object {
	t.Helper()
	compiled, err := render.Compile(t.Context(), template, nil)
	require.NoError(t, err)
	objects, omitted, err := compiled.Stamp(values)
	require.NoError(t, err)
	require.Empty(t, omitted)
	return objects
}

// FuzzFromNamespace checks that an object of a namespace, whatever its text is, is the same object again when the
// template is applied to this namespace, and that comments stay comments.
func FuzzFromNamespace(f *testing.F) {
	for _, seed := range []string{
		"plain", "shop", "$(NAMESPACE)", "$$(NAMESPACE)", "$shop", "db.shop.svc", "$.shop.svc", "x\nkind: Secret\n", "\u0085a: b",
		"system:serviceaccount:shop:x", "system:serviceaccounts:shop", "jane", "$(CREATOR)", "${NAMESPACE}", "# no", "\u202e", "-shop-",
	} {
		f.Add(seed, "key")
		f.Add("value", seed)
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		text, key = strings.ToValidUTF8(text, ""), strings.ToValidUTF8(key, "")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Annotations: map[string]string{v1alpha1.CreatorAnnotation: "jane"},
		}}
		objects := []*unstructured.Unstructured{
			{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "namespace": "shop"},
				"spec": map[string]any{"a": text, "namespace": text, key: text, "list": []any{text, int64(1), nil}},
			}},
			{Object: map[string]any{
				"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
				"metadata": map[string]any{"name": "b", "namespace": "shop", "annotations": map[string]any{"note": text}},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
				"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": text + "x"}},
			}},
		}
		for _, template := range decode(t, fromNamespace(t.Context(), ns, objects, "shop", nil)) {
			for _, object := range rendered(t, template, render.Values{Namespace: "shop", Creator: "jane"}) {
				source := objects[0]
				if object.GetKind() == "RoleBinding" {
					source = objects[1]
					require.Equal(t, text, object.GetAnnotations()["note"])
				}
				require.Equal(t, asJSON(t, source.Object, "metadata"), asJSON(t, object.Object, "metadata"))
			}
		}
	})
}

// asJSON returns an object as JSON without a field.
func asJSON(t *testing.T, object map[string]any, without string) string {
	t.Helper()
	rest := map[string]any{}
	for name, value := range object {
		if name != without {
			rest[name] = value
		}
	}
	data, err := json.Marshal(rest)
	require.NoError(t, err)
	return string(data)
}

func TestJoinParts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		parts []part
		want  string
	}{
		{nil, ""},
		{[]part{{text: "a-"}, namespaceName, {text: "-b"}}, "a-$(NAMESPACE)-b"},
		{[]part{{text: "$(NAME"}, {text: "SPACE)"}}, "$$(NAMESPACE)"},
		{[]part{namespaceName, creatorName}, "$(NAMESPACE)$(CREATOR)"},
		{[]part{namespaceName, {text: "$"}}, "$(NAMESPACE)$"},
	} {
		got, err := joinParts(test.parts...)
		require.NoError(t, err)
		require.Equal(t, test.want, got)
	}
	_, err := joinParts(part{text: "a$"}, namespaceName)
	require.Error(t, err) // $$(NAMESPACE) would be a literal $(NAMESPACE)
}
