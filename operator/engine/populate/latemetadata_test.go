package populate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/test/controlplane"
)

// A write of an earlier leader that corrects a label reaches the API server after the template was deleted. The next
// leader found the label removed or changed by a user, so that it had no value to remove.
func TestLateMetadataOfADeletedTemplateIsRefused(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	apply := func(config *beforePatches, ns *corev1.Namespace, templates ...*v1alpha1.NamespaceTemplate) *Outcome {
		client, err := metadata.NewForConfig(config.wrap(cluster.RESTConfig()))
		require.NoError(t, err)
		index := match.NewIndex(templates...)
		plan := NewPlan(Declare(render.NewCache(), ns, index.Match(ns), Inputs{}), index, Observed{})
		return NewApplier(client, nil, nil, 1, nil).ApplyMetadata(t.Context(), plan)
	}
	template := setsTier("t", "gold")
	template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	deleted := template.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		theirs  string
		known   []*v1alpha1.NamespaceTemplate
		existed bool
	}{
		"removed":      {"", []*v1alpha1.NamespaceTemplate{deleted}, false},
		"changed":      {"theirs", []*v1alpha1.NamespaceTemplate{deleted}, false},
		"removed-gone": {"", nil, false},
		"changed-gone": {"theirs", nil, false},
		"existed-gone": {"theirs", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := recorded("t", "gold")
			record.Existed = test.existed
			ns := namespaceWith(test.theirs, record)
			ns.Name, ns.UID = name, ""
			ns, err := api.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
			require.NoError(t, err)
			late := apply(&beforePatches{call: func(number int) {
				current, err := api.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
				require.NoError(t, err)
				if number == 0 { // the first write is repeated after a change by a user
					current.Labels["own"] = "x"
					_, err := api.CoreV1().Namespaces().Update(t.Context(), current, metav1.UpdateOptions{})
					require.NoError(t, err)
				} else if next := apply(&beforePatches{call: func(int) {}}, current, test.known...); next != nil {
					require.Nil(t, next.Failure, "%v", next.Failure)
				}
			}}, ns, template)
			stored, err := api.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, test.theirs, stored.Labels["tier"])
			require.NotNil(t, late.Failure)
			require.Equal(t, metav1.StatusReasonConflict, late.Failure.Reason, "%v", late.Failure)
		})
	}
}

// The depth labels of a namespace remain in the record when the labels and annotations of templates change.
func TestTheRecordKeepsTheDepths(t *testing.T) {
	t.Parallel()
	template := setsTier("t", "gold")
	ns := namespaceWith("", RecordedValue{})
	patchOf := func() string {
		plan := NewPlan(Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{template}, Inputs{}),
			match.NewIndex(template), Observed{})
		require.NotEmpty(t, plan.Changes)
		return plan.Changes[0].Metadata.patch()[render.Annotations][recordKey.Key].(string)
	}
	ns.Annotations[recordKey.Key] = WithDepths(ns.Annotations, "first")
	ns.Labels["tier"], ns.Annotations[recordKey.Key] = "gold", patchOf()
	moved := WithDepths(ns.Annotations, "second")
	require.NotEqual(t, ns.Annotations[recordKey.Key], moved)
	require.True(t, MayPruneMetadata(ns, "t", template.UID))
	ns.Annotations[recordKey.Key], template.Spec.NamespaceMetadata = moved, nil
	require.Equal(t, WithDepths(nil, "second"), patchOf())
	ns.Annotations[recordKey.Key] = WithDepths(nil, "second")
	require.Empty(t, NewPlan(Declare(render.NewCache(), ns, nil, Inputs{}), match.NewIndex(), Observed{}).Changes)
}
