package rollout

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func newPause(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "pause TEMPLATE [-o FORMAT]",
		Short: "Pause the rollout of a template",
		Long: templates.LongDesc(`
			Pause the rollout of a template. Namespaces that have the newest revision keep it, and the others keep the
			revision that they have. Later changes of the template wait too. Use "kubectl nstpl rollout resume" to
			continue.

			New namespaces get the newest revision nevertheless. Grants that a change takes away end in all namespaces
			immediately, unless spec.rollout.revocation of the template is WithRollout.`),
		Example: templates.Examples(`
			# Pause the rollout of a template
			kubectl nstpl rollout pause budget`),
	}, "paused", pausePatch)
}

func newResume(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "resume TEMPLATE [-o FORMAT]",
		Short: "Resume the paused rollout of a template",
		Long: templates.LongDesc(`
			Resume the rollout of a template that "kubectl nstpl rollout pause" paused. A rollout that stopped because
			namespaces failed is not paused: use "kubectl nstpl rollout undo" or "kubectl nstpl rollout restart".`),
		Example: templates.Examples(`
			# Resume the rollout of a template
			kubectl nstpl rollout resume budget`),
	}, "resumed", resumePatch)
}

func pausePatch(template *unstructured.Unstructured) (map[string]any, error) {
	if isPaused(template) {
		return nil, fmt.Errorf("%s is already paused", quoted(template.GetName()))
	}
	return map[string]any{"spec": map[string]any{"rollout": map[string]any{"paused": true}}}, nil
}

// isPaused reports whether spec.rollout.paused is true.
func isPaused(template *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(template.Object, "spec", "rollout", "paused")
	return paused
}

// resumePatch removes spec.rollout.paused. It removes spec.rollout if it has no other field, so that the spec is again
// as it was before the pause.
func resumePatch(template *unstructured.Unstructured) (map[string]any, error) {
	if !isPaused(template) {
		return nil, notPausedError(template)
	}
	if rollout, _, _ := unstructured.NestedMap(template.Object, "spec", "rollout"); len(rollout) == 1 {
		return map[string]any{"spec": map[string]any{"rollout": nil}}, nil
	}
	return map[string]any{"spec": map[string]any{"rollout": map[string]any{"paused": nil}}}, nil
}

func notPausedError(object *unstructured.Unstructured) error {
	template, err := cluster.Decode[v1alpha1.NamespaceTemplate](object)
	if err != nil {
		return err
	}
	revisions := template.Status.Revisions
	if len(revisions) > 0 && revisions[0].State == v1alpha1.RolloutStopped {
		return fmt.Errorf("%s is not paused: its rollout stopped because namespaces failed: "+
			"run 'kubectl nstpl rollout status %s' to see why", quoted(template.Name), template.Name)
	}
	return fmt.Errorf("%s is not paused", quoted(template.Name))
}
