// Package command holds the commands of `kubectl nstpl`, a file for each.
package command

import (
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// fieldManager is who changes namespaces. Populated objects are the operator's.
const fieldManager = "kubectl-nstpl"

// session is what every command works with.
type session struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
}

// New returns the command `kubectl nstpl`.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	s := session{IOStreams: streams, config: genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(-1)}
	s.config.WrapConfigFn = wrap(rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true, Color: printers.AllowsColorOutput(streams.ErrOut),
	}))
	root := &cobra.Command{
		Use:   "nstpl",
		Short: "Create namespaces with their policy objects, and see what populates them",
		Long: templates.LongDesc(`
			Create namespaces that come up with the objects that the cluster's administrators chose in NamespaceTemplates,
			see beforehand what a namespace gets and why, and compare what is there with what is declared.`),
		Example: templates.Examples(`
			# Create a namespace and wait until it is populated
			kubectl nstpl create team-a

			# Show what a namespace would get, and why
			kubectl nstpl preview team-a --label tier=production

			# Show what differs from the templates in any namespace
			kubectl nstpl diff -A`),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nstpl"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(usageError)
	s.config.AddFlags(root.PersistentFlags())
	addVerbosity(root.PersistentFlags())
	root.AddCommand(
		newCreate(s), newPreview(s), newVet(s), newDiff(s), newStatus(s), newOptOut(s), newAttributes(s), newSCC(s), newTree(s), newHydrate(s), newVersion(s), newCompletion(s),
	)
	s.completeConfigFlags(root)
	return root
}

// addVerbosity adds the one flag of klog that says something about the command: with 6 and more, its requests.
func addVerbosity(flags *pflag.FlagSet) {
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	flags.AddGoFlag(all.Lookup("v"))
}

// wrap leaves the throttle to the API server's priority and fairness and shows its warnings.
func wrap(warnings rest.WarningHandler) func(*rest.Config) *rest.Config {
	return func(config *rest.Config) *rest.Config {
		config.QPS = -1
		config.UserAgent = "kubectl-nstpl/" + version.String()
		config.WarningHandler = warnings
		return config
	}
}

func (s session) connect() (*cluster.Cluster, error) {
	return cluster.Connect(s.config)
}

// connectAsSelf connects as the caller, without regard to whom they impersonate.
func (s session) connectAsSelf() (*cluster.Cluster, error) {
	return cluster.Connect(self{s.config})
}

type self struct {
	genericclioptions.RESTClientGetter
}

func (s self) ToRESTConfig() (*rest.Config, error) {
	config, err := s.RESTClientGetter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{}
	return config, nil
}

// note says something beside the result.
func (s session) note(format string, args ...any) {
	output.Line(s.ErrOut, format, args...)
}

// usageError says how a command line is wrong, and where to read how it is right.
func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see '%s -h' for help and examples", err, cmd.CommandPath())
}
