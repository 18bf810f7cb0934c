package rollout

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func templateWith(rollout map[string]any) *unstructured.Unstructured {
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	template.SetName("budget")
	template.SetUID("1234")
	template.SetResourceVersion("7")
	if rollout != nil {
		template.Object["spec"] = map[string]any{"rollout": rollout}
	}
	return template
}

func TestPauseAndResumeKeepTheSpecAsItWas(t *testing.T) {
	paused := map[string]any{"paused": true}
	for name, test := range map[string]struct {
		before map[string]any
		resume any
	}{
		"without rollout": {nil, nil},
		"with rollout":    {map[string]any{"maxFailures": int64(1)}, map[string]any{"paused": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := pausePatch(templateWith(test.before))
			require.NoError(t, err)
			require.Equal(t, map[string]any{"spec": map[string]any{"rollout": paused}}, patch)

			after := map[string]any{"paused": true}
			maps.Copy(after, test.before)
			patch, err = resumePatch(templateWith(after))
			require.NoError(t, err)
			require.Equal(t, map[string]any{"spec": map[string]any{"rollout": test.resume}}, patch)
		})
	}
}

func TestPauseAndResumeReportThatThereIsNothingToDo(t *testing.T) {
	_, err := pausePatch(templateWith(map[string]any{"paused": true}))
	require.EqualError(t, err, `namespacetemplates.policy.nstpl.dev "budget" is already paused`)
	_, err = resumePatch(templateWith(nil))
	require.EqualError(t, err, `namespacetemplates.policy.nstpl.dev "budget" is not paused`)
}

func TestRestartNeedsANewTimeAndNoPause(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	template := templateWith(nil)
	patch, err := restartPatch(template, now)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{v1alpha1.RestartedAtAnnotation: "2026-01-02T03:04:05Z"},
	}}, patch)

	template.SetAnnotations(map[string]string{v1alpha1.RestartedAtAnnotation: "2026-01-02T03:04:05Z"})
	_, err = restartPatch(template, now)
	require.EqualError(t, err, `namespacetemplates.policy.nstpl.dev "budget" was already restarted within the past `+
		`second: wait before you restart it again`)
	_, err = restartPatch(templateWith(map[string]any{"paused": true}), now)
	require.EqualError(t, err, `namespacetemplates.policy.nstpl.dev "budget" is paused and cannot be restarted: `+
		`run 'kubectl nstpl rollout resume budget' first`)
}

// A rollback names the state of the template that it was computed from, so the API server applies it to no other.
func TestRollbackIsPinnedToTheTemplateAsItWasRead(t *testing.T) {
	target := revision(2, "b", "Correct")
	target.Annotations = map[string]string{v1alpha1.ChangeCauseAnnotation: "ticket 1"}
	rolledBack := rollBack(templateWith(nil), target)
	require.EqualValues(t, "1234", rolledBack.GetUID())
	require.Equal(t, "7", rolledBack.GetResourceVersion())
	require.Equal(t, map[string]string{"kubernetes.io/change-cause": "ticket 1"}, rolledBack.GetAnnotations())
	require.Equal(t, map[string]any{
		"driftPolicy": "Correct", "namespaces": map[string]any{"labelSelector": map[string]any{}},
	}, specOf(rolledBack))
}
