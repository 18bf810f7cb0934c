// Package drift holds the commands restore and accept, for objects that a user changed and whose template has
// driftPolicy Report, so that the operator keeps the change. The command restore applies the declaration again. The
// command accept prints the change of the template that makes the change of the object the declared one.
package drift

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// planned is what the operator would do in a namespace.
type planned struct {
	cluster   *cluster.Cluster
	namespace *corev1.Namespace
	templates []*v1alpha1.NamespaceTemplate
	index     *match.Index
	plan      populate.Plan
}

// plan reads the templates and the objects of the namespace of the command line. A namespace that no template populates
// is an error.
func plan(ctx context.Context, s cli.Session) (*planned, error) {
	name, _, err := s.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := s.Connect()
	if err == nil {
		err = c.CheckInstalled(ctx)
	}
	if err != nil {
		return nil, err
	}
	p := &planned{cluster: c}
	if p.namespace, err = c.Namespace(ctx, name); err != nil {
		return nil, err
	}
	if p.templates, err = c.Templates(ctx); err != nil {
		return nil, err
	}
	namespaces := []*corev1.Namespace{p.namespace}
	var unread []error
	if p.index, unread = c.Index(ctx, p.templates, namespaces); len(unread) > 0 {
		return nil, unread[0] // an exemption or a revision may forbid what the command does
	}
	compared, err := survey.Compare(ctx, c, p.index, namespaces, survey.Scope{})
	if err != nil {
		return nil, err
	}
	for ns := range compared.Namespaces(ctx) {
		if ns.Skipped != "" {
			return nil, fmt.Errorf("namespace/%s is not populated: %s", name, ns.Skipped)
		}
		p.plan = ns.Plan()
	}
	return p, ctx.Err()
}

// find returns the change of the object that an argument names as TYPE/NAME. An object that no template declares, that
// is exempt, that cannot be compared, or whose declaration the operator leaves out is an error.
func (p *planned) find(ctx context.Context, argument string) (populate.Change, error) {
	declared := make([]populate.ObjectID, 0, len(p.plan.Changes))
	for _, change := range p.plan.Changes {
		declared = append(declared, change.ID())
	}
	id, err := p.cluster.ObjectID(ctx, argument, declared)
	if err != nil {
		return populate.Change{}, err
	}
	var omitted error
	for _, change := range p.plan.Changes {
		switch {
		case change.ID() != id:
		case change.Metadata != nil:
			return change, fmt.Errorf("labels and annotations of %s are neither restored nor accepted by this command: "+
				"'kubectl nstpl diff %s' shows how they differ, and names their templates; set them by 'kubectl label' and "+
				"'kubectl annotate', or change what these templates declare in namespaceMetadata", id, p.namespace.Name)
		case change.Exemption != nil:
			return change, fmt.Errorf("%s %s: delete templateexemption/%s first", p.where(change), change.Reason,
				change.Exemption.Name)
		case change.Action == populate.Unknown:
			return change, fmt.Errorf("%s cannot be compared with template %s: %s", p.where(change), change.Template,
				change.Reason)
		case change.Declared != nil:
			return change, nil
		case change.Action == populate.LeaveAlone:
			omitted = p.leftAlone(change)
		}
	}
	for _, template := range p.index.Ahead(p.namespace) {
		if coming, _ := survey.DeclaredBy(template, p.namespace); slices.Contains(coming, id) {
			return populate.Change{}, fmt.Errorf("%s is not declared for namespace/%s yet: revision %d of template %s declares "+
				"it, and has not reached the namespace: 'kubectl nstpl rollout status %[4]s' shows the rollout", id,
				p.namespace.Name, p.index.Layers(template.Name)[0].Revision, template.Name)
		}
	}
	if omitted != nil {
		return populate.Change{}, omitted
	}
	return populate.Change{}, fmt.Errorf("no template declares %s for namespace/%s: 'kubectl nstpl preview %[2]s -o name' "+
		"lists what templates declare for it", id, p.namespace.Name)
}

// leftAlone returns the error for an object that the operator leaves as it is, such as one that two templates declare.
func (p *planned) leftAlone(change populate.Change) error {
	return fmt.Errorf("%s is left alone by the operator: %s", p.where(change), change.Reason)
}

// cannotRestore returns the error for an object that restore does not apply.
func (p *planned) cannotRestore(outcome populate.Outcome) error {
	err := fmt.Errorf("cannot restore %s: %w", p.where(outcome.Change), outcome.Failure)
	if outcome.Failure.Reason == populate.ReasonWaitsForRole {
		err = fmt.Errorf("%w: run the command again", err)
	}
	return err
}

// where returns the object of a change, and its namespace.
func (p *planned) where(change populate.Change) string {
	return fmt.Sprintf("%s in namespace %s", change.ID(), p.namespace.Name)
}

// checkRevision returns an error if the namespace has another revision of the template than the stored one, which a
// patch changes, and if the two do not declare the object alike: then a patch would take back what the rollout changes.
func (p *planned) checkRevision(ctx context.Context, change populate.Change) error {
	stored, has := p.template(change), p.index.Layers(change.Template).For(p.namespace)
	if change.Declared.Template.Generation == stored.Generation {
		return nil
	}
	newest := p.declaredWith(ctx, stored, change.ID())
	if newest != nil && newest.Template.Name == stored.Name && newest.Hash == change.Declared.Hash {
		return nil
	}
	return fmt.Errorf("%s has the declaration of revision %d of template %s, and the template, as it was changed since, "+
		"declares it otherwise: run the command again when the namespace has the newest revision ('kubectl nstpl rollout "+
		"status %[3]s' shows the rollout)", p.where(change), has.Revision, stored.Name)
}

// declaredWith returns an object as it is declared for the namespace after a template has replaced the one of the same
// name, also in the index, and the namespace has it. It returns nil if the object is not declared then.
func (p *planned) declaredWith(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, id populate.ObjectID,
) *populate.Object {
	p.index.Set(template)
	declared := survey.Declare(render.NewCache(), survey.Sources(ctx, p.cluster), p.index, p.namespace)
	for i := range declared.Objects {
		if declared.Objects[i].ID() == id {
			return &declared.Objects[i]
		}
	}
	return nil
}

// template returns the stored template that declares the object of a change, or nil.
func (p *planned) template(change populate.Change) *v1alpha1.NamespaceTemplate {
	for _, template := range p.templates {
		if template.Name == change.Template {
			return template
		}
	}
	return nil
}
