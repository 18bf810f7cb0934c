package rollout

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func newPause(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "pause TEMPLATE [-o FORMAT]",
		Short: "Pause the rollout of a template",
		Long: templates.LongDesc(`
			Pause the rollout of a template. Namespaces that have the newest revision keep it, and the others keep the
			revision that they have. Later changes of the template wait too. Use "kubectl nstpl rollout resume" to
			continue.`),
		Example: templates.Examples(`
			# Pause the rollout of a template
			kubectl nstpl rollout pause budget`),
	}, "paused", pausePatch)
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
