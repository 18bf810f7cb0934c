package constraint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// exemptFlag is the operator's flag for the namespaces to which constraints do not apply.
const exemptFlag = "--scc-exempt-namespaces"

type preflight struct {
	cli.Session
	output cli.ListFlags
}

// neededWorkload is a workload that nodes may need.
type neededWorkload struct {
	Namespace string           `json:"namespace"`
	Ref       output.ObjectRef `json:"object"`
	// Reason says why nodes may need the workload.
	Reason string `json:"message"`
	// object is the name of the workload: "daemonset.apps/driver".
	object string
}

func newPreflight(s cli.Session) *cobra.Command {
	o := &preflight{Session: s}
	cmd := &cobra.Command{
		Use:   "preflight [-o name|json|yaml|...]",
		Short: "Show which namespaces to exempt from SecurityContextConstraints",
		Long: templates.LongDesc(`
			Show the namespaces that you should exempt before you create the first SecurityContextConstraints: those
			with workloads that nodes need, such as network and storage drivers. While the operator is down, no pods
			can be created in namespaces that are not exempt. If a node needs such a pod before it can run the
			operator, neither starts. Exempt namespaces with the operator's flag ` + exemptFlag + `.

			The command shows a workload if it mounts a directory in which network or storage drivers are registered,
			if it has a system priority class, or if it is a DaemonSet with host network. The operator does not need
			every such workload.

			Exit status: 0 if there are no such workloads, 1 if there are some or the command failed.`),
		Example: templates.Examples(`
			# Show which namespaces to exempt before you create the first constraints
			kubectl nstpl scc preflight`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context())
		},
	}
	o.output.AddTo(cmd, cli.ListOptions{Names: true})
	return cmd
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
	isOperator := func(w cluster.Workload) bool {
		return w.Namespace == v1alpha1.OperatorNamespace && w.Name == v1alpha1.WebhookName &&
			w.Kind == appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind()
	}
	exempt := scc.ExemptNamespaces
	if i := slices.IndexFunc(workloads, isOperator); i >= 0 {
		exempt = exemptNamespaces(workloads[i].Pods)
	}
	var needed []neededWorkload
	var namespaces []string
	for _, w := range workloads {
		reason := reasonNodesNeed(w)
		if reason == "" || slices.Contains(exempt, w.Namespace) {
			continue
		}
		needed = append(needed, neededWorkload{
			Namespace: w.Namespace, Ref: output.NewObjectRef(w.Kind.WithVersion("v1"), w.Namespace, w.Name),
			Reason: reason, object: output.Object(w.Kind, w.Name),
		})
		namespaces = append(namespaces, w.Namespace)
	}
	err = cli.PrintList(o.Session, &o.output, cli.Printed[neededWorkload]{
		Kind: "NeededWorkloadList", Items: needed, Table: neededTable,
		Name:  func(w neededWorkload) string { return w.object },
		Empty: "all workloads that nodes need are in exempt namespaces: " + strings.Join(exempt, ", "),
	})
	if err != nil || len(needed) == 0 {
		return err
	}
	slices.Sort(namespaces)
	o.Note("exempt the namespaces with workloads that the operator's pods need to start: %s=%s",
		exemptFlag, strings.Join(slices.Concat(exempt[len(scc.ExemptNamespaces):], slices.Compact(namespaces)), ","))
	return &cli.Exit{Code: 1}
}

func neededTable(workloads []neededWorkload) output.Table {
	table := output.Table{Columns: []string{"Namespace", "Object", "Reason"}}
	for _, w := range workloads {
		table.Rows = append(table.Rows, []string{w.Namespace, w.object, w.Reason})
	}
	return table
}

// exemptNamespaces returns the namespaces to which constraints do not apply: first the namespaces that are always
// exempt, then those of the flag in the operator's Deployment, which has these pods.
func exemptNamespaces(operator corev1.PodSpec) []string {
	exempt := slices.Clone(scc.ExemptNamespaces)
	for _, value := range operatorFlag(operator, exemptFlag) {
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); name != "" {
				exempt = append(exempt, name)
			}
		}
	}
	return exempt
}

// operatorFlag returns the values of a flag in the arguments of the operator's pods.
func operatorFlag(pods corev1.PodSpec, flag string) []string {
	var values []string
	for _, container := range pods.Containers {
		for i, arg := range container.Args {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				values = append(values, value)
			} else if arg == flag && i+1 < len(container.Args) {
				values = append(values, container.Args[i+1])
			}
		}
	}
	return values
}

// driverDirectories are the directories of a node in which network and storage drivers are registered.
var driverDirectories = []struct{ path, driver string }{
	{"/etc/cni", "network"}, {"/opt/cni", "network"}, {"/var/lib/cni", "network"},
	{"/var/lib/kubelet/plugins", "storage"}, {"/var/lib/kubelet/plugins_registry", "storage"},
}

// reasonNodesNeed returns the reason why nodes may not work without a workload, or "" if there is none.
func reasonNodesNeed(w cluster.Workload) string {
	for _, volume := range w.Pods.Volumes {
		if volume.HostPath == nil {
			continue
		}
		for _, directory := range driverDirectories {
			if volume.HostPath.Path == directory.path || strings.HasPrefix(volume.HostPath.Path, directory.path+"/") {
				return fmt.Sprintf("mounts %s, like a %s driver", volume.HostPath.Path, directory.driver)
			}
		}
	}
	if class := w.Pods.PriorityClassName; class == "system-node-critical" || class == "system-cluster-critical" {
		return "has priority class " + class
	}
	if w.Kind.Kind == "DaemonSet" && w.Pods.HostNetwork {
		return "is a DaemonSet with host network"
	}
	return ""
}
