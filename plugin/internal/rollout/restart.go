package rollout

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

func newRestart(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "restart TEMPLATE [-o FORMAT]",
		Short: "Begin the rollout of a template again",
		Long: templates.LongDesc(`
			Begin the rollout of the newest revision of a template again, with its first wave. Use it when a rollout
			stopped because namespaces failed, after you corrected the cause.`),
		Example: templates.Examples(`
			# Begin the rollout of a template again
			kubectl nstpl rollout restart budget`),
	}, "restarted", func(template *unstructured.Unstructured) (map[string]any, error) {
		return restartPatch(template, time.Now())
	})
}

func restartPatch(template *unstructured.Unstructured, now time.Time) (map[string]any, error) {
	if isPaused(template) {
		return nil, fmt.Errorf("%s is paused and cannot be restarted: run 'kubectl nstpl rollout resume %s' first",
			quoted(template.GetName()), template.GetName())
	}
	value := now.UTC().Format(time.RFC3339)
	if template.GetAnnotations()[v1alpha1.RestartedAtAnnotation] == value {
		return nil, fmt.Errorf("%s was already restarted within the past second: wait before you restart it again",
			quoted(template.GetName()))
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.RestartedAtAnnotation: value}},
	}, nil
}
