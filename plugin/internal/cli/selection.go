package cli

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

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Selection holds which namespaces a command line selects: by their names, all (-A), or by their labels (-l).
type Selection struct {
	// Names are the names in the arguments of the command, such as team-a of ns/team-a. Others may be set instead.
	Names []string

	all      bool
	selector string
}

// AddFlags adds -A, -l and a check to a command. The check sets Names.
func (x *Selection) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&x.all, "all-namespaces", "A", false, "Select all namespaces.")
	cmd.Flags().StringVarP(&x.selector, "selector", "l", "",
		"Select the namespaces whose labels match. Supports '=', '==', '!=', 'in' and 'notin' (e.g. -l tier=prod).")
	beforeRun(cmd, x.check)
}

// check returns an error if names are combined with -A or -l, or if a name or the selector is invalid.
func (x *Selection) check(args []string) (err error) {
	if x.Names, err = NamespaceResource().Names(args); err != nil {
		return err
	}
	if x.HasNames() && (x.all || x.selector != "") {
		return errors.New("names of namespaces cannot be combined with -A or -l")
	}
	if _, err := labels.Parse(x.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	return nil
}

// HasNames reports whether the command line names namespaces.
func (x *Selection) HasNames() bool { return len(x.Names) > 0 }

// IsEmpty reports whether the command line selects no namespaces. Read then returns all namespaces.
func (x *Selection) IsEmpty() bool { return !x.HasNames() && !x.all && x.selector == "" }

// Read returns the selected namespaces. Forbidden holds an error of the API server for each namespace that is named and
// that the user may not read.
func (x *Selection) Read(
	ctx context.Context, c *cluster.Cluster,
) (namespaces []*corev1.Namespace, forbidden []error, err error) {
	if x.HasNames() {
		return readByName(ctx, c, x.Names)
	}
	namespaces, err = c.ListNamespaces(ctx, x.selector)
	return namespaces, nil, err
}

// ReadSome reads the selected namespaces, as Read does. If a selector matches no namespace, the error is an
// UnmatchedError.
func (x *Selection) ReadSome(
	ctx context.Context, c *cluster.Cluster,
) (namespaces []*corev1.Namespace, forbidden []error, err error) {
	namespaces, forbidden, err = x.Read(ctx, c)
	if err == nil && x.selector != "" && len(namespaces) == 0 {
		err = UnmatchedError(x.selector)
	}
	return namespaces, forbidden, err
}

// UnmatchedError is the error about a selector that matches no namespace in a cluster.
type UnmatchedError string

// Error names the selector.
func (e UnmatchedError) Error() string {
	return fmt.Sprintf("no namespace matches --selector %q: "+
		"run 'kubectl get namespaces --show-labels' to list their labels", string(e))
}

// SelectExplicit selects the namespace of the flag --namespace, unless the command line selects others.
func (x *Selection) SelectExplicit(s Session) error {
	name, isExplicit, err := s.Namespace()
	if isExplicit && x.IsEmpty() {
		x.Names = []string{name}
	}
	return err
}

// ReadOrCurrent reads the selected namespaces, as Read does. If none is selected and the user may not list namespaces,
// it selects and reads the one of the flag --namespace or of the kubeconfig.
func (x *Selection) ReadOrCurrent(
	ctx context.Context, s Session, c *cluster.Cluster,
) (namespaces []*corev1.Namespace, forbidden []error, err error) {
	namespaces, forbidden, err = x.Read(ctx, c)
	if !apierrors.IsForbidden(err) || !x.IsEmpty() {
		return namespaces, forbidden, err
	}
	name, _, err := s.Namespace()
	if err != nil {
		return nil, nil, err
	}
	x.Names = []string{name}
	return x.Read(ctx, c)
}

// Watched returns what to watch so as to see the selected namespaces: each namespace by its name, or all whose labels
// match.
func (x *Selection) Watched() []metav1.ListOptions {
	if !x.HasNames() {
		return []metav1.ListOptions{{LabelSelector: x.selector}}
	}
	var watched []metav1.ListOptions
	for _, name := range slices.Compact(slices.Sorted(slices.Values(x.Names))) {
		watched = append(watched, cluster.OnlyNamed(name))
	}
	return watched
}

func readByName(
	ctx context.Context, c *cluster.Cluster, names []string,
) (namespaces []*corev1.Namespace, forbidden []error, err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	read, readErrs := cluster.EachOrError(names, func(name string) (*corev1.Namespace, error) {
		return c.Namespace(ctx, name)
	})
	var errs []error
	for i, err := range readErrs {
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, err)
		case err != nil:
			errs = append(errs, err)
		default:
			namespaces = append(namespaces, read[i])
		}
	}
	return namespaces, forbidden, errors.Join(errs...)
}
