package drift

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

var errOverlay = errors.New("an overlay or a token decides it")

// NewAccept returns the command `kubectl nstpl accept`.
func NewAccept(s cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "accept TYPE/NAME",
		Short: "Print how to change a template so that it declares what an object has",
		Long: templates.LongDesc(`
			Print how to change a template so that it declares what an object in a namespace has, as a JSON patch in
			YAML. The command changes nothing: a template declares the object for all its namespaces, and its file
			may be in Git.

			The patch is for "kubectl patch --type=json", in the cluster or, with --local, in a file. It tests each
			value before it changes it, so it fails if the template has changed meanwhile. The command prints only a
			patch with which the template declares what the object has. If an overlay, a token or another template
			decides a field, it says so.`),
		Example: templates.Examples(`
			# Show what was changed in the current namespace
			kubectl nstpl diff

			# Change the template in the cluster
			kubectl nstpl accept resourcequota/compute -n team-a >patch.yaml
			kubectl patch namespacetemplate budget --type=json --patch-file=patch.yaml

			# Change the template in a file
			kubectl patch --local -f budget.yaml --type=json --patch-file=patch.yaml -o yaml`),
		Args:              cli.OneArg("TYPE/NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return accept(cmd.Context(), s, args[0])
		},
	}
}

func accept(ctx context.Context, s cli.Session, argument string) error {
	p, err := plan(ctx, s)
	if err != nil {
		return err
	}
	change, err := p.find(ctx, argument)
	if err != nil {
		return err
	}
	if err := p.checkRevision(ctx, change); err != nil {
		return err
	}
	changes, err := p.acceptable(ctx, change)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		s.Note("%s is as template %s declares it", p.where(change), change.Template)
		return nil
	}
	template := p.template(change)
	patch, err := newPatch(template, change.Declared.Unstructured, changes)
	if err != nil {
		return err
	}
	if err := p.verify(ctx, template, patch, change, changes); err != nil {
		return err
	}
	printed, err := output.YAML(patch)
	if err != nil {
		return err
	}
	s.Note("template %s declares it for all its namespaces: 'kubectl nstpl diff -f FILE' shows what the changed template "+
		"changes", template.Name)
	_, err = s.Out.Write(printed)
	return err
}

// acceptable returns the changes of an object, from the declared values to those that it has.
func (p *planned) acceptable(ctx context.Context, change populate.Change) ([]fields.Change, error) {
	object := change.Declared.Unstructured
	if source, isCopy := render.SourceOf(object); isCopy {
		return nil, fmt.Errorf("%s is a copy of %s: change that object", p.where(change), source)
	}
	if survey.IsSecret(object) {
		return nil, fmt.Errorf("%s is a Secret, whose values must not be in a template: spec.sources copies one",
			p.where(change))
	}
	sides, err := survey.DryRun(ctx, p.cluster, p.namespace.Name, change)
	switch {
	case err != nil:
		return nil, err
	case sides.Live == nil:
		return nil, p.missing(ctx, change)
	case sides.Refusal != nil:
		return nil, fmt.Errorf("the declaration of %s cannot be compared: %w", p.where(change), sides.Refusal)
	}
	changes := fields.Compare(survey.Content(sides.Stored), survey.Content(sides.Live))
	if altered := populate.AlteredField(change.Declared, sides.Live); len(changes) == 0 && altered != nil {
		return nil, fmt.Errorf("%s is not as template %s declares it: mutating admission changes %s whenever the object is "+
			"applied: declare what it writes, or exempt the object from that webhook or policy", p.where(change),
			change.Template, altered)
	}
	return changes, nil
}

// missing returns the error for an object that does not exist, so that it has nothing that a template could declare.
func (p *planned) missing(ctx context.Context, change populate.Change) error {
	what := p.where(change) + " does not exist"
	if change.Drifted {
		what = p.where(change) + " was deleted"
	}
	exempt := fmt.Sprintf("'kubectl nstpl exempt %s --template %s --object %s --reason TEXT' leaves the namespace without it",
		p.namespace.Name, change.Template, change.ID())
	refused := p.cluster.Applier().MayRestore(ctx, p.plan, []populate.ObjectID{change.ID()})
	switch {
	case refused == nil:
		return fmt.Errorf("%s: 'kubectl nstpl restore' creates it, and %s", what, exempt)
	case survey.RefusesRestore(refused.Failure):
		return fmt.Errorf("%s: %s, and it cannot be restored now: %w", what, exempt, refused.Failure)
	}
	return fmt.Errorf("%s: %s, and it is unknown whether it can be restored: %w", what, exempt, refused.Failure)
}

// verify returns an error unless the templates, with the patched one, declare for the namespace what the object has.
func (p *planned) verify(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, patch []operation, change populate.Change,
	changes []fields.Change,
) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return err
	}
	object, err := apply(patch, &unstructured.Unstructured{Object: content})
	if err != nil {
		return err
	}
	patched := &v1alpha1.NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, patched); err != nil {
		return err
	}
	declared := p.declaredWith(ctx, patched, change.ID())
	if declared != nil && !slices.ContainsFunc(changes, func(c fields.Change) bool {
		return !declares(declared.Object, c)
	}) {
		return nil
	}
	return fmt.Errorf("no patch of template %s makes it declare what %s has, because %w: edit the template by hand",
		template.Name, p.where(change), errOverlay)
}

// declares reports whether an object has a field as it is after a change.
func declares(object map[string]any, change fields.Change) bool {
	_, value, exists := change.Path.Pointer(object)
	if change.Removed {
		return value == nil
	}
	return exists && reflect.DeepEqual(value, change.To)
}
