// Package command assembles `kubectl nstpl`: the commands of each family, the commands version and completion, and the
// flags of all commands.
package command

import (
	"errors"
	"flag"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/attribute"
	"nstpl.dev/nstpl/plugin/internal/check"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/constraint"
	"nstpl.dev/nstpl/plugin/internal/diff"
	"nstpl.dev/nstpl/plugin/internal/drift"
	"nstpl.dev/nstpl/plugin/internal/namespace"
	"nstpl.dev/nstpl/plugin/internal/report"
	"nstpl.dev/nstpl/plugin/internal/rollout"
	"nstpl.dev/nstpl/plugin/internal/scaffold"
	"nstpl.dev/nstpl/plugin/internal/schema"
	"nstpl.dev/nstpl/plugin/internal/sync"
	"nstpl.dev/nstpl/plugin/internal/top"
	"nstpl.dev/nstpl/plugin/internal/tree"
	"nstpl.dev/nstpl/plugin/internal/vet"
	"nstpl.dev/nstpl/plugin/internal/why"
)

// New returns the command `kubectl nstpl`.
func New(s cli.Session) *cobra.Command {
	root := &cobra.Command{
		Use:   "nstpl",
		Short: "Create namespaces with their policy objects, and inspect these objects",
		Long: templates.LongDesc(`
			Create namespaces that are populated with the objects that NamespaceTemplates declare. Preview which
			objects a namespace gets and why, and compare the objects in the cluster with their declarations.`),
		Example: templates.Examples(`
			# Create a namespace and wait until it is populated
			kubectl nstpl create team-a

			# Preview the objects that a namespace would get, and why
			kubectl nstpl preview team-a --label tier=production

			# Show the differences from the templates in all namespaces
			kubectl nstpl diff -A`),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nstpl"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.SetFlagErrorFunc(cli.UsageError)
	s.Config.AddFlags(root.PersistentFlags())
	addVerbosity(root)
	addGroup(root, "Namespaces:",
		namespace.NewCreate(s), namespace.NewPreview(s), namespace.NewStatus(s), why.New(s), diff.New(s), report.New(s),
		namespace.NewOptOut(s), namespace.NewExempt(s), namespace.NewTransfer(s), drift.NewRestore(s),
		drift.NewAccept(s))
	addGroup(root, "Templates and trees of policies:",
		scaffold.New(s), vet.New(s), rollout.New(s), tree.New(s), top.New(s), tree.NewHydrate(s), sync.New(s))
	addGroup(root, "Permissions:", attribute.New(s), constraint.New(s))
	addGroup(root, "Other commands:",
		check.New(s), schema.New(s), newOptions(s), newVersion(s), newCompletion(s))
	setHelp(root)
	s.CompleteConfigFlags(root)
	return root
}

// addGroup adds commands that the help of the root command lists under a title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

// addVerbosity adds the flag -v of klog. From level 6, commands log their requests. Without the flag, the packages of
// Kubernetes log nothing: each error is printed once, as a sentence.
func addVerbosity(root *cobra.Command) {
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	root.PersistentFlags().AddGoFlag(all.Lookup("v"))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("v") {
			return nil
		}
		klog.SetOutput(io.Discard)
		return errors.Join(all.Set("logtostderr", "false"), all.Set("stderrthreshold", "FATAL"))
	}
}
