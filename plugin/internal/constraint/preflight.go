package constraint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// exemptFlag is the flag of the operator with the namespaces to which constraints do not apply.
const exemptFlag = "--scc-exempt-namespaces"

type preflight struct{ cli.Session }

func newPreflight(s cli.Session) *cobra.Command {
	o := &preflight{s}
	return &cobra.Command{
		Use:   "preflight",
		Short: "Show which namespaces to exempt before you create SecurityContextConstraints",
		Long: templates.LongDesc(`
			Show workloads that nodes need, such as network and storage drivers, in namespaces to which
			SecurityContextConstraints apply. While the operator is down, pods in such namespaces cannot be created.
			If the operator's own pods then need the driver to start, neither starts again. Exempt these namespaces
			with the operator's flag` + exemptFlag + `.

			A workload is shown if it mounts folders in which network or storage drivers are registered, if it has a
			system priority class, or if it is a DaemonSet in the host's network. The operator does not need every
			workload of this kind.

			Exit status: 0 if no namespace is found, and 1 if there are some or if the command failed.`),
		Example: templates.Examples(`
			# Before creating the first constraint
			kubectl nstpl scc preflight`),
		DisableFlagsInUseLine: true,
		Args:                  cli.NoArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
}

func (o *preflight) run(ctx context.Context) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	workloads, err := c.Workloads(ctx)
	if err != nil {
		return err
	}
	exempt := exemptNamespaces(workloads)
	table := output.Table{Columns: []string{"Namespace", "Object", "Reason"}}
	var namespaces []string
	for _, w := range workloads {
		reason := neededByNodes(w)
		if reason == "" || slices.Contains(exempt, w.Namespace) {
			continue
		}
		table.Rows = append(table.Rows, []string{w.Namespace, output.Object(w.Kind, w.Name), reason})
		namespaces = append(namespaces, w.Namespace)
	}
	if len(namespaces) == 0 {
		o.Note("no workload that nodes need is in a namespace to which constraints apply; exempt are %s",
			strings.Join(exempt, ", "))
		return nil
	}
	if err := table.Print(o.Out, false); err != nil {
		return err
	}
	slices.Sort(namespaces)
	o.Note("exempt the namespaces that the operator's pods need to start: %s=%s",
		exemptFlag, strings.Join(slices.Concat(exempt[len(scc.ExemptNamespaces):], slices.Compact(namespaces)), ","))
	return &cli.Exit{Code: 1}
}

// exemptNamespaces returns the namespaces to which constraints do not apply: first those that are always exempt, and
// then those in the flag of the operator's Deployment.
func exemptNamespaces(workloads []cluster.Workload) []string {
	exempt := slices.Clone(scc.ExemptNamespaces)
	for _, w := range workloads {
		if w.Namespace != v1alpha1.OperatorNamespace ||
			w.Kind != appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind() || w.Name != v1alpha1.WebhookName {
			continue
		}
		for _, container := range w.Pods.Containers {
			for i, arg := range container.Args {
				value, ok := strings.CutPrefix(arg, exemptFlag+"=")
				if arg == exemptFlag && i+1 < len(container.Args) {
					value, ok = container.Args[i+1], true
				}
				for name := range strings.SplitSeq(value, ",") {
					if name = strings.TrimSpace(name); ok && name != "" {
						exempt = append(exempt, name)
					}
				}
			}
		}
	}
	return exempt
}

// driverFolders are the folders of a node in which network and storage drivers are registered.
var driverFolders = []struct{ path, driver string }{
	{"/etc/cni", "network"}, {"/opt/cni", "network"}, {"/var/lib/cni", "network"},
	{"/var/lib/kubelet/plugins", "storage"}, {"/var/lib/kubelet/plugins_registry", "storage"},
}

// neededByNodes returns why nodes may not work without a workload, or "" if they do.
func neededByNodes(w cluster.Workload) string {
	for _, volume := range w.Pods.Volumes {
		if volume.HostPath == nil {
			continue
		}
		for _, folder := range driverFolders {
			if volume.HostPath.Path == folder.path || strings.HasPrefix(volume.HostPath.Path, folder.path+"/") {
				return fmt.Sprintf("it mounts %s, as a %s driver does", volume.HostPath.Path, folder.driver)
			}
		}
	}
	if class := w.Pods.PriorityClassName; class == "system-node-critical" || class == "system-cluster-critical" {
		return "it has the priority class " + class
	}
	if w.Kind.Kind == "DaemonSet" && w.Pods.HostNetwork {
		return "it is a DaemonSet in the host's network"
	}
	return ""
}
