// Package why holds the command why. It explains namespaces, objects, files and error messages: who declares an object,
// who changed it, which template, rule, constraint, quota or hold decides, and what to do.
//
// The arguments are parsed to a subject (argument.go), of which an explainer makes an answer: of a namespace
// (namespace.go), of another object (object.go, own.go, pods.go), of a message of nstpl by its codes (denial.go),
// of a message of Kubernetes by its words (kubernetes.go), or of a dry run (files.go, pods.go). An explainer reads with
// the permissions of the caller, and notes once what the caller may not read.
package why

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

type why struct {
	cli.Session
	files  source.Filenames
	output cli.FormatFlag
}

// New returns the command `kubectl nstpl why`.
func New(s cli.Session) *cobra.Command {
	o := &why{Session: s}
	cmd := &cobra.Command{
		Use:   "why NAMESPACE | TYPE/NAME | -f FILE [-R] | -k DIR | MESSAGE... | - [-n NAMESPACE] [-o yaml|json]",
		Short: "Explain why an object is as it is, or why a request was denied",
		Long: templates.LongDesc(`
			Explain a namespace, an object, a file or an error message: who declares the object, who changed it, which
			template, rule, constraint, quota or hold decides, and what to do.

			Of a namespace, the command shows whether it is populated, what it waits for, and which templates select it.
			Of another object, it shows which template declares it, and which fields differ because of whom; of a
			workload, also why its pods could not be created, as long as a condition or an Event says so. With -f, it
			tries to create the objects by a dry run, as you or the user of --as, and explains each denial. Of a
			workload, it also tries one of its pods, as the controller that creates them, or as you if you may not
			impersonate the controller.

			Of an object of nstpl, such as a template, a policy repository or an exemption, it shows what its status
			says; of a pod, which SecurityContextConstraints admitted it.

			An argument with spaces, or with a code such as (nstpl:held), is an error message. With "-", the command
			reads the message from standard input. Without a cluster, it explains what the code means.`),
		Example: templates.Examples(`
			# Explain the state of a namespace
			kubectl nstpl why team-a

			# Explain why a template is not in force everywhere
			kubectl nstpl why nstpl/budget

			# Show who declares a NetworkPolicy, and who changed it
			kubectl nstpl why networkpolicy/default-deny -n team-a

			# Explain why a Deployment has no pods
			kubectl nstpl why deployment/web -n team-a

			# Explain why a pod would be denied
			kubectl nstpl why -f pod.yaml -n team-a

			# Explain an error message
			kubectl create -f pod.yaml 2>&1 | kubectl nstpl why - -n team-a`),
		ValidArgsFunction: completeNamespace(s),
		RunE: func(cmd *cobra.Command, args []string) error {
			filesErr := o.files.Check()
			switch {
			case filesErr != nil:
				return cli.UsageError(cmd, filesErr)
			case !o.files.IsEmpty() && len(args) > 0:
				return cli.UsageError(cmd, errors.New("specify either files or arguments"))
			case !o.files.IsEmpty():
				return o.explainFiles(cmd.Context())
			case len(args) == 1 && args[0] == "-":
				text, err := readMessage(o.In)
				if err != nil {
					return err
				}
				args = []string{text, ""} // a single word from a pipe is a message, too
			}
			asked, err := parse(args)
			if err != nil {
				return cli.UsageError(cmd, err)
			}
			return o.explain(cmd.Context(), asked)
		},
	}
	o.files.AddFlags(cmd, "objects")
	o.output.AddTo(cmd, "", "Output format", cli.FormatYAML, cli.FormatJSON)
	return cmd
}

// maxMessage is the greatest length of a message in bytes.
const maxMessage = 1 << 20

func readMessage(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read standard input: %w", err)
	case len(data) > maxMessage:
		return "", errors.New("standard input is larger than 1 MiB, which no error message is")
	}
	return string(data), nil
}

// explain explains an object or a message.
func (o *why) explain(ctx context.Context, asked subject) error {
	e, err := o.explainer()
	if asked.message != "" {
		answers, err := e.messages(ctx, asked.message, e.located)
		return o.write(err, answers...)
	}
	if err != nil {
		return err
	}
	defer o.Progress("reading the cluster")()
	explained, err := e.named(ctx, asked.resource, asked.name)
	return o.write(err, explained)
}

// write prints answers, or returns err.
func (o *why) write(err error, answers ...answer) error {
	if err != nil {
		return err
	}
	for i := range answers {
		answers[i].sort()
	}
	list := output.NewList("ExplanationList", answers)
	switch o.output.Format {
	case cli.FormatJSON:
		return output.JSON(o.Out, list)
	case cli.FormatYAML:
		return output.YAMLStream(o.Out, []any{list})
	}
	for i := range answers {
		if i > 0 {
			output.Line(o.Out, "")
		}
		answers[i].print(o.Session)
	}
	return nil
}
