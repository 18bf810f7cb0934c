package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

type preview struct {
	cli.Session
	output      cli.ListFlags
	labels      []string
	annotations []string
	space       spaceFlag
	creator     string
	files       source.Filenames
	withCluster bool
	server      bool
	// full explains every template that does not match.
	full bool
}

// NewPreview returns the command `kubectl nstpl preview`.
func NewPreview(s cli.Session) *cobra.Command {
	p := &preview{Session: s}
	cmd := &cobra.Command{
		Use: "preview NAME [-l KEY=VALUE]... [--annotation KEY=VALUE]... [--space SPACE] [-f FILE]... [-R] [-k DIR] " +
			"[--creator USER] [--server] [--full] [-o table|name|json|yaml|...]",
		Short: "Preview the objects that templates declare for a namespace",
		Long: templates.LongDesc(`
			Show the objects that templates declare for a namespace, whether it exists or not. Standard output has
			the objects as the operator applies them. Standard error has the templates that match, and for each
			object what the operator would do and why. Of many templates that select by labels that the namespace
			does not have, it has the number only, unless you use --full.

			A namespace that does not exist is previewed as if you created it, or the user of --as. If this user may
			create it, it has the labels that admission plugins set in it, too. The token $(CREATOR) stands for this
			user, and $(LABEL:key) and $(ANNOTATION:key) for labels and annotations of the namespace. A note names
			each matching template that this user may not use.

			With -f, the command uses only the templates in the files, and no cluster. With --with-cluster or
			--server, it also uses the templates of the cluster. A template in a file then replaces the template of
			the same name in the cluster.

			Copies of sources are shown as they are with the source that you may read, with the values of Secrets
			masked. Without the right to get a source, or without a cluster, its copy is left out.

			If you may not read templates, as the owner of a namespace, the command shows the populated objects that
			exist in the namespace, with the values of Secrets masked.

			Unlike in other commands, --server does not set the address of the API server: use -s or --api-server.`),
		Example: templates.Examples(`
			# Preview the objects of a namespace, whether it exists or not
			kubectl nstpl preview team-a

			# Preview the changes after adding a label
			kubectl nstpl preview team-a -l tier=production -o table

			# Preview a template in a file, without a cluster
			kubectl nstpl preview team-a -f template.yaml --creator jane@example.com

			# Preview what the API server would store for a changed template
			kubectl nstpl preview team-a -f template.yaml --server`),
		Args:              cli.OneArg("NAME"),
		ValidArgsFunction: s.CompleteNamespaces(1),
		RunE: cli.NamespaceResource().Named(func(cmd *cobra.Command, name string) error {
			if err := p.files.Check(); err != nil {
				return cli.UsageError(cmd, err)
			}
			return p.run(cmd.Context(), name)
		}),
	}
	p.output.AddTo(cmd, cli.ListOptions{Names: true, Formats: []string{cli.FormatTable}})
	flags := cmd.Flags()
	flags.StringArrayVarP(&p.labels, "label", "l", nil,
		"A label to add to those of the namespace, as KEY=VALUE. Can be repeated.")
	flags.StringArrayVar(&p.annotations, "annotation", nil,
		"An annotation to add to those of the namespace, as KEY=VALUE. Can be repeated.")
	p.space.addTo(cmd, s)
	flags.StringVar(&p.creator, "creator", "",
		"The creator of the namespace. Defaults to its creator annotation or, for a new namespace, to you.")
	p.files.AddFlags(cmd, "templates")
	flags.BoolVar(&p.withCluster, "with-cluster", false,
		"Use the templates of the cluster too, besides those in files.")
	flags.BoolVar(&p.server, "server", false,
		"Show the objects as the API server would store them, by a dry run. The namespace must exist.")
	flags.BoolVar(&p.full, "full", false, "Explain every template that does not match.")
	flags.StringVarP(s.Config.APIServer, "api-server", "s", "", "The address and port of the Kubernetes API server.")
	return cmd
}

func (p *preview) run(ctx context.Context, name string) error {
	p.withCluster = p.withCluster || p.server
	predicted, err := p.predict(ctx, name)
	if errors.Is(err, errUnlisted) {
		return p.runPopulated(ctx, name)
	}
	if err != nil {
		return err
	}
	if p.server && predicted.forbidden != nil {
		return predicted.forbidden
	}
	if p.server && predicted.live == nil {
		return fmt.Errorf("namespaces %q not found: --server needs a namespace that exists: "+
			"create it first, or leave out --server", name)
	}
	p.explain(predicted)
	errs := []error{p.write(ctx, predicted)}
	for _, broken := range predicted.BrokenTemplates() {
		errs = append(errs, errors.New(broken.Message))
	}
	return errors.Join(errs...)
}

// explain prints which templates match and why, and what the operator would do with each object.
func (p *preview) explain(predicted prediction) {
	if note := creationNote(predicted.denial, len(predicted.forbiddenTemplates) > 0); note != "" {
		p.Note("%s", note)
	}
	if predicted.Skipped != "" {
		p.Note("namespace/%s is not populated: %s", predicted.Declared.Namespace.Name, predicted.Skipped)
		return
	}
	p.explainVerdicts(predicted.verdicts)
	for _, template := range predicted.forbiddenTemplates {
		p.Note("%s may not use template %s, so the API server would deny this namespace: "+
			"ask for the verb use on namespacetemplates/%[2]s in the API group policy.nstpl.dev",
			cmp.Or(*p.Config.Impersonate, "you"), template)
	}
	for _, unreadable := range predicted.unreadable {
		p.Note("not compared: %v", unreadable)
	}
	if p.output.Format != cli.FormatTable {
		for _, change := range predicted.Changes {
			p.Note("%s", output.Change(change))
		}
	}
}

// fewUnrelated is how many templates that have nothing to do with the namespace are explained one by one.
const fewUnrelated = 3

// explainVerdicts prints why templates match or not. Of templates that select by labels that the namespace does not
// have, it prints only the number, if they are more than a few.
func (p *preview) explainVerdicts(verdicts []match.Verdict) {
	unrelated := 0
	for _, verdict := range verdicts {
		if verdict.IsUnrelated {
			unrelated++
		}
	}
	isShort := unrelated > fewUnrelated && !p.full
	for _, verdict := range verdicts {
		if !verdict.IsUnrelated || !isShort {
			p.Note("%s", describeVerdict(verdict))
		}
	}
	if isShort {
		p.Note("%d other templates do not match, since they select other labels or names: --full shows them", unrelated)
	}
}

func describeVerdict(verdict match.Verdict) string {
	if !verdict.Matches {
		return fmt.Sprintf("template %s does not match: %s", verdict.Template, verdict.Reason)
	}
	overlays := ""
	if len(verdict.Overlays) > 0 {
		overlays = " (overlays: " + strings.Join(verdict.Overlays, ", ") + ")"
	}
	return fmt.Sprintf("template %s matches: %s%s", verdict.Template, verdict.Reason, overlays)
}

func (p *preview) write(ctx context.Context, predicted prediction) error {
	var objects []*unstructured.Unstructured
	for _, change := range predicted.Changes {
		if change.Metadata != nil && change.Declared != nil {
			objects = append(objects, change.Declared.Unstructured)
		}
	}
	for _, object := range predicted.Objects {
		if object.Unavailable == nil {
			objects = append(objects, withMaskedCopy(object.Unstructured))
		}
	}
	var rejected error
	if p.server {
		objects, rejected = dryRun(ctx, predicted)
	}
	if p.output.Format == cli.FormatTable {
		return errors.Join(p.output.PrintTable(p.Out, output.ChangesTable(predicted.Changes)), rejected)
	}
	return errors.Join(p.printObjects(objects), rejected)
}

// printObjects prints YAML and names object by object. In other formats it prints a list, as "kubectl get" does.
func (p *preview) printObjects(objects []*unstructured.Unstructured) error {
	objects, err := cli.Sorted(&p.output, objects)
	if err != nil {
		return err
	}
	switch p.output.Format {
	case "", cli.FormatYAML:
		return output.YAMLStream(p.Out, objects)
	case cli.FormatName:
		for _, object := range objects {
			output.Line(p.Out, "%s", render.IDOf(object))
		}
		return nil
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, object := range objects {
		list.Items = append(list.Items, *object)
	}
	_, err = p.output.PrintReport(p.Out, list)
	return err
}

// withMaskedCopy returns an object with masked values if it is a copy of a Secret. The template does not contain them.
func withMaskedCopy(object *unstructured.Unstructured) *unstructured.Unstructured {
	if _, isCopy := render.SourceOf(object); isCopy {
		object = object.DeepCopy()
		maskSecret(object)
	}
	return object
}

// dryRun returns the objects as the API server would store them. It returns an error for each object that the API
// server rejects, and all other objects.
func dryRun(ctx context.Context, predicted prediction) ([]*unstructured.Unstructured, error) {
	objects, errs := cluster.EachOrError(predicted.Changes,
		func(change populate.Change) (*unstructured.Unstructured, error) {
			if change.Declared == nil || change.Declared.Unavailable != nil {
				return nil, nil
			}
			sides, err := survey.DryRun(ctx, predicted.cluster, predicted.Declared.Namespace.Name, change)
			if err == nil {
				err = sides.Refusal
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", output.ChangedObject(change), err)
			}
			sides.Stored.SetManagedFields(nil)
			return withMaskedCopy(sides.Stored), nil
		})
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool { return object == nil })
	return objects, errors.Join(errs...)
}
