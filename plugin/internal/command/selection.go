package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// selection says which namespaces a command is about: those with these names, or all, or all with some labels.
type selection struct {
	names    []string
	all      bool
	selector string
}

func (x *selection) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&x.all, "all-namespaces", "A", false, "All namespaces.")
	cmd.Flags().StringVarP(&x.selector, "selector", "l", "", "All namespaces whose labels match, as in kubectl get.")
}

func (x *selection) check(cmd *cobra.Command) error {
	if len(x.names) > 0 && (x.all || x.selector != "") {
		return cli.UsageError(cmd, errors.New("namespaces can be named, or selected with -A or -l, not both"))
	}
	if _, err := labels.Parse(x.selector); err != nil {
		return cli.UsageError(cmd, fmt.Errorf("--selector: %w", err))
	}
	return nil
}

// many says that namespaces were not named one by one.
func (x *selection) many() bool {
	return len(x.names) == 0
}

// read returns the namespaces. Those that are named and that the caller may not read come back as errors in unread.
func (x *selection) read(ctx context.Context, c *cluster.Cluster) (namespaces []*corev1.Namespace, unread []error, err error) {
	if x.many() {
		list, err := c.Namespaces.List(ctx, metav1.ListOptions{LabelSelector: x.selector})
		if err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			namespaces = append(namespaces, &list.Items[i])
		}
		return namespaces, nil, nil
	}
	slices.Sort(x.names)
	type answer struct {
		ns  *corev1.Namespace
		err error
	}
	var errs []error
	for _, a := range cluster.Each(slices.Compact(x.names), func(name string) answer {
		ns, err := c.Namespaces.Get(ctx, name, metav1.GetOptions{})
		return answer{ns, err}
	}) {
		switch {
		case apierrors.IsForbidden(a.err):
			unread = append(unread, a.err)
		case a.err != nil:
			errs = append(errs, a.err)
		default:
			namespaces = append(namespaces, a.ns)
		}
	}
	return namespaces, unread, errors.Join(errs...)
}
