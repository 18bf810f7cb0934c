package revisions

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
)

func TestInForce(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(controlplane.New(t).RESTConfig()).AppsV1().ControllerRevisions("default")
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", Generation: 9}}
	selecting := func(value string) v1alpha1.NamespaceTemplateSpec {
		return v1alpha1.NamespaceTemplateSpec{Namespaces: v1alpha1.NamespaceSelector{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": value}},
		}}
	}
	store := func(name, owner, value string) {
		t.Helper()
		raw, err := json.Marshal(DataOf(selecting(value)))
		require.NoError(t, err)
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate", Name: "a",
				UID: "uid", Controller: new(true),
			}},
		}}
		if owner == "" {
			revision.OwnerReferences = nil
		}
		revision.Data.Raw = raw
		_, err = client.Create(t.Context(), revision, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	template.Spec = selecting("stored")
	store("a-1", "uid", "first")
	store("a-2", "", "forged")
	store("a-3", "uid", "stored")
	store("a-4", "uid", "fourth")
	template.Status.Revisions = []v1alpha1.TemplateRevision{
		{Name: "a-5", Generation: 9}, // the stored spec
		{Name: "a-4", Generation: 8, Waves: []v1alpha1.Wave{{PauseSeconds: 1}}},
		{Name: "a-3", Generation: 7}, {Name: "a-2", Generation: 6}, {Name: "gone", Generation: 5},
		{Name: "a-1", Generation: 4},
	}
	reader := NewReader(client)
	for range 2 { // the second time, the specs are known
		inForce, err := reader.InForce(t.Context(), template)
		require.NoError(t, err)
		var values []string
		for _, revision := range inForce {
			require.Equal(t, template.UID, revision.UID)
			values = append(values, revision.Spec.Namespaces.LabelSelector.MatchLabels["a"])
		}
		require.Equal(t, []string{"stored", "fourth", "first"}, values)
		require.Equal(t, []v1alpha1.Wave{{PauseSeconds: 1}}, inForce[1].Spec.Rollout.Waves)
		require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	require.Equal(t, []string{"a-5", "a-4", "a-3", "a-2", "gone", "a-1"}, Names(template))

	// A forged status cannot make one revision pass for another.
	store("a-1", "uid", "first")
	forged := template.DeepCopy()
	forged.Status.Revisions = []v1alpha1.TemplateRevision{{Name: "a-1", Generation: 30}}
	reader = NewReader(client)
	_, err := reader.InForce(t.Context(), forged)
	require.NoError(t, err)
	store("a-30", "uid", "thirtieth")
	spec, err := reader.Spec(t.Context(), template, v1alpha1.TemplateRevision{Name: "a-30", Generation: 30})
	require.NoError(t, err)
	require.Equal(t, "thirtieth", spec.Namespaces.LabelSelector.MatchLabels["a"])
}

func TestPopulateSame(t *testing.T) {
	t.Parallel()
	spec := func(object string) v1alpha1.NamespaceTemplateSpec {
		return v1alpha1.NamespaceTemplateSpec{Templates: []runtime.RawExtension{{Raw: []byte(object)}}}
	}
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"the order of fields":                      {`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		"integers that float64 rounds to the same": {`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		"null in a kind of Kubernetes":             {`{"apiVersion":"v1","data":null}`, `{"apiVersion":"v1"}`, true},
		"null in a custom resource":                {`{"apiVersion":"a.b/v1","spec":{"a":null}}`, `{"apiVersion":"a.b/v1","spec":{}}`, false},
	} {
		require.Equal(t, test.want, PopulateSame(spec(test.a), spec(test.b)), name)
	}
	stored, err := Canonical(DataOf(spec(`{"a":9223372036854775807}`)))
	require.NoError(t, err)
	require.Contains(t, string(stored), `"a":9223372036854775807`)
}
