// Package top holds the command top space, which shows who uses the quotas of policyspaces.
//
// The limits and their usage are in the status of PolicySpaces. The usage of each namespace is in its ResourceQuota
// nstpl-policyspace, in which the API server counts. Who uses a quota is computed from both (newLimits), as far as the
// user may read them.
package top

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// New returns the command `kubectl nstpl top`.
func New(s cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who uses the quotas of policyspaces",
		Long: templates.LongDesc(`
			Show who uses the quotas of policyspaces: how much of each limit is used, and by which namespaces.`),
		Example: templates.Examples(`
			# Show how much of each quota is used, and by which namespaces
			kubectl nstpl top space`),
	}
	return cli.Subcommands(cmd, newSpace(s))
}

type space struct {
	cli.Session
	flags    cli.ListFlags
	resource string
}

func newSpace(s cli.Session) *cobra.Command {
	o := &space{Session: s}
	cmd := &cobra.Command{
		Use:     "space [SPACE] [--resource NAME] [-o wide|name|json|yaml|...]",
		Aliases: []string{"spaces", "policyspace", "policyspaces", "ps"},
		Short:   "Show who uses the quota of a policyspace",
		Long: templates.LongDesc(`
			Show each limit of a policyspace with its usage, and the child policyspaces and namespaces that use the
			most. The command also shows the limits of the policyspaces above, which limit the policyspace as well.

			Without SPACE, the command shows the limits of all policyspaces. Those of which the most is used are the
			first. With -o wide, no namespace is left out.`),
		Example: templates.Examples(`
			# Show how much of each quota is used, and by which namespaces
			kubectl nstpl top space

			# Show who uses the quota of a policyspace, and the quotas above it
			kubectl nstpl top space payments

			# Show all namespaces that use up a limit on pods
			kubectl nstpl top space payments --resource pods -o wide`),
		Args:              cli.AtMostOneArg("SPACE"),
		ValidArgsFunction: s.CompletePolicySpace(),
		RunE: cli.PolicySpaceResource().Named(func(cmd *cobra.Command, name string) error {
			return o.run(cmd.Context(), name)
		}),
	}
	cmd.Flags().StringVar(&o.resource, "resource", "",
		"Show only the limits of a resource, such as pods or requests.cpu.")
	s.AddChunkSizeFlag(cmd)
	o.flags.AddTo(cmd, cli.ListOptions{Wide: true, Names: true, Optional: []string{"used", "percent"}})
	return cmd
}

func (o *space) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	all, err := o.read(ctx, c, name)
	if err != nil {
		return err
	}
	shown := all.forest.Names()
	if name != "" {
		if all.forest.Get(name) == nil {
			return cluster.NoPolicySpace(name, shown)
		}
		shown = all.lineage(name)
	}
	limits, none := newLimits(all, shown, o.resource), "no quotas found"
	if o.resource != "" {
		none = fmt.Sprintf("no limits of %s found", o.resource)
	}
	if name == "" {
		sortByPercent(limits)
	}
	err = cli.PrintList(o.Session, &o.flags, cli.Printed[limit]{
		Kind: "PolicySpaceUsageList", Items: limits,
		Name:  func(l limit) string { return "policyspace." + v1alpha1.GroupVersion.Group + "/" + l.Name },
		Table: func(limits []limit) output.Table { return table(limits, o.flags.Format == cli.FormatWide) },
		Empty: none,
	})
	if err == nil && o.flags.Format == "" { // a wide table has a column for messages
		for _, note := range notes(limits) {
			o.Note("%s", note)
		}
	}
	return err
}

// read reads what the cluster has, as far as the user may read it. The policyspaces are all or, if the user may only
// get some, the one with the name and those above it.
func (o *space) read(ctx context.Context, c *cluster.Cluster, name string) (usage, error) {
	defer o.Progress("reading policyspaces and namespaces")()
	var read usage
	var spaces []*v1alpha1.PolicySpace
	var unlisted, unquoted, unnamed error
	var quotas []*corev1.ResourceQuota
	var missing string
	var listing sync.WaitGroup
	listing.Go(func() { missing = cli.MissingOperator(ctx, c, "usages may be old") })
	listing.Go(func() { spaces, unlisted = c.PolicySpaces(ctx) })
	listing.Go(func() { read.namespaces, unnamed = c.ListNamespaces(ctx, v1alpha1.PolicySpaceLabel) })
	listing.Go(func() { quotas, unquoted = c.UsageQuotas(ctx) })
	listing.Wait()
	if apierrors.IsForbidden(unlisted) && name != "" {
		spaces, unlisted = o.readLineage(ctx, c, name)
		read.isLineage = true
	}
	if unlisted != nil {
		return read, unlisted
	}
	if missing != "" {
		o.Note("%s", missing)
	}
	read.forest = hierarchy.NewForest(spaces)
	for _, failed := range []struct {
		err      error
		resource string
	}{{unnamed, "namespaces"}, {unquoted, "resourcequotas"}} {
		if apierrors.IsForbidden(failed.err) {
			o.Note("you may not list %s, so the namespaces that use the quotas are not shown: ask for the ClusterRole "+
				"nstpl-auditor", failed.resource)
			return read, nil
		}
		if failed.err != nil {
			return read, failed.err
		}
	}
	read.used = map[string]corev1.ResourceList{}
	for _, quota := range quotas {
		read.used[quota.Namespace] = quota.Status.Used
	}
	return read, nil
}

// readLineage returns a policyspace and those above it, as far as the user may get them.
func (o *space) readLineage(ctx context.Context, c *cluster.Cluster, name string) ([]*v1alpha1.PolicySpace, error) {
	var spaces []*v1alpha1.PolicySpace
	for at, seen := name, map[string]bool{}; at != "" && !seen[at]; {
		seen[at] = true
		found, err := c.PolicySpace(ctx, at)
		switch {
		case len(spaces) > 0 && apierrors.IsForbidden(err):
			o.Note("you may not get policyspace %s, so its limits and those above it are not shown: ask for the "+
				"ClusterRole nstpl-viewer", at)
			return spaces, nil
		case len(spaces) > 0 && apierrors.IsNotFound(err):
			return spaces, nil
		case err != nil:
			return nil, err
		}
		spaces, at = append(spaces, found), found.Spec.Parent
	}
	return spaces, nil
}
