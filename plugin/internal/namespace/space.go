package namespace

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// spaceFlag is the flag --space: the policyspace of a namespace, which is a label.
type spaceFlag struct{ value string }

func (f *spaceFlag) addTo(cmd *cobra.Command, s cli.Session) {
	cmd.Flags().StringVar(&f.value, "space", "",
		"The policyspace of the namespace. Sets the label "+v1alpha1.PolicySpaceLabel+".")
	s.CompleteObjectFlag(cmd, "space", v1alpha1.PolicySpaces)
}

// setIn sets the label of the flag among labels. It returns an error if they name another policyspace.
func (f *spaceFlag) setIn(labels map[string]string) error {
	if f.value == "" {
		return nil
	}
	space, err := cli.PolicySpaceResource().Name(f.value)
	if err != nil {
		return fmt.Errorf("--space: %w", err)
	}
	if named, exists := labels[v1alpha1.PolicySpaceLabel]; exists && named != space {
		return fmt.Errorf("--space %s contradicts --label %s=%s: leave out one of them", space,
			v1alpha1.PolicySpaceLabel, named)
	}
	labels[v1alpha1.PolicySpaceLabel] = space
	return nil
}

// withSpaceLabels returns a namespace with the labels in which the operator records its policyspaces, and with what the
// operator would report about its place. Templates select namespaces by these labels. It prints a note if they are
// unknown.
func withSpaceLabels(
	ctx context.Context, s cli.Session, c *cluster.Cluster, ns *corev1.Namespace,
) (*corev1.Namespace, error) {
	if ns.Labels[v1alpha1.PolicySpaceLabel] == "" && len(hierarchy.OwnDepthLabels(ns)) == 0 {
		return survey.WithPlacement(ns, nil), nil
	}
	spaces, err := c.PolicySpaces(ctx)
	if apierrors.IsForbidden(err) {
		s.Note("the policies that namespace/%s inherits are unknown: %v", ns.Name, err)
		return ns, nil
	}
	if err != nil {
		return nil, err
	}
	labeled, err := hierarchy.NewForest(spaces).Placed(ns)
	_, isNotAdopted := errors.AsType[*hierarchy.NotAdoptedError](err)
	switch {
	case isNotAdopted:
		s.Note("Warning: %v", err)
	case err != nil:
		s.Note("the policies that namespace/%s inherits are unknown: %v", ns.Name, err)
	}
	return survey.WithPlacement(labeled, err), nil
}
