package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// object explains an object that is not a Namespace. It also returns the object, or nil if it cannot be read.
func (e *explainer) object(
	ctx context.Context, mapping *meta.RESTMapping, namespace, name string,
) (a answer, live *unstructured.Unstructured, err error) {
	a = answer{Subject: output.Object(mapping.GroupVersionKind.GroupKind(), name)}
	if isNamespaced(mapping) {
		a.Namespace = namespace
	}
	live, err = e.get(ctx, mapping, namespace, name)
	if err != nil {
		live = nil
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return a, nil, err
		}
	}
	if live != nil {
		addOrigin(&a, live)
		addManagers(&a, live, time.Now())
	}
	change, index := e.planned(ctx, &a, mapping, name, live)
	switch {
	case change != nil:
		e.explainChange(ctx, &a, change, live)
		addDeclaration(&a, change, index)
	case apierrors.IsForbidden(err):
		a.Summary = "you may not read " + a.where() + ", so nothing is known about it"
		a.add(labelRemedy, "Ask an administrator for the verb get on "+mapping.Resource.GroupResource().String()+".")
	case a.expected != "":
		a.Summary = a.where() + " does not exist: " + a.expected
	case live == nil:
		a.Summary = a.where() + " does not exist, and no template is known to declare it"
		a.add(labelRemedy, "Check the name and the namespace.")
		if a.Namespace != "" {
			e.addAuthoritative(ctx, &a, populate.ObjectID{
				GroupKind: mapping.GroupVersionKind.GroupKind(), Name: name,
			}, index)
		}
	case explainOwn(&a, live, time.Now()):
		e.addSync(ctx, &a, live)
	default:
		explainByMetadata(&a, live)
	}
	if live != nil {
		addConstraintOf(&a, live)
	}
	return a, live, nil
}

// addConstraintOf adds which constraint admitted a pod that exists.
func addConstraintOf(a *answer, live *unstructured.Unstructured) {
	constraint := live.GetAnnotations()[v1alpha1.SCCAnnotation]
	if live.GetKind() != "Pod" || live.GroupVersionKind().Group != corev1.GroupName || constraint == "" {
		return
	}
	a.add(labelDecidedBy, fmt.Sprintf("SecurityContextConstraints %s admitted it, according to its annotation %s",
		constraint, v1alpha1.SCCAnnotation))
}

// exemptCommand returns the command that exempts a namespace from an object of a template.
func (a *answer) exemptCommand(template string) string {
	return fmt.Sprintf("'kubectl nstpl exempt %s --template %s --object %s --reason TEXT --for 3d'", a.Namespace, template,
		a.Subject)
}

// where returns the object and its namespace.
func (a *answer) where() string {
	if a.Namespace == "" {
		return a.Subject
	}
	return a.Subject + " in namespace " + a.Namespace
}

// planned returns what the operator would do with the object of an answer, and the templates, or nil if no template
// declares it or that is unknown. Live is the object, or nil.
func (e *explainer) planned(
	ctx context.Context, a *answer, mapping *meta.RESTMapping, name string, live *unstructured.Unstructured,
) (*populate.Change, *match.Index) {
	if a.Namespace == "" {
		return nil, nil
	}
	ns, err := e.cluster.Namespace(ctx, a.Namespace)
	if apierrors.IsNotFound(err) {
		a.add(labelState, fmt.Sprintf("namespace/%s does not exist", a.Namespace))
	}
	if err != nil {
		e.isUnread(err, "namespace/"+a.Namespace, "")
		return nil, nil
	}
	if a.unpopulated = survey.UnpopulatedReason(ns); a.unpopulated != "" {
		a.add(labelState, fmt.Sprintf("namespace/%s is not populated: %s", a.Namespace, a.unpopulated))
		if match.OptedOut(ns) {
			a.add(labelRemedy, fmt.Sprintf("Opt it in again with 'kubectl nstpl opt-out %s --undo'.", ns.Name))
		}
		return nil, nil
	}
	id := populate.ObjectID{GroupKind: mapping.GroupVersionKind.GroupKind(), Name: name}
	templates, known := e.templates(ctx)
	if !known {
		a.addReported(populate.PopulatedCondition(ns), id, live != nil)
		if live != nil {
			e.explainLeftAlone(ctx, a, ns, live)
		}
		return nil, nil
	}
	index, unread := e.cluster.Index(ctx, templates, []*corev1.Namespace{ns})
	for _, err := range unread {
		e.noteOnce("%v", err)
	}
	compared, err := survey.Compare(ctx, e.cluster, index, []*corev1.Namespace{ns}, survey.Scope{})
	if err != nil {
		e.noteOnce("the objects of namespace/%s cannot be compared with the templates: %v", a.Namespace, err)
		return nil, nil
	}
	for planned := range compared.Namespaces(ctx) {
		for _, change := range planned.Changes {
			if change.Declared != nil {
				a.declared = append(a.declared, change.ID().String())
			}
		}
		i := slices.IndexFunc(planned.Changes, func(change populate.Change) bool {
			return change.Kind.GroupKind() == id.GroupKind && output.ChangedObject(change) == a.Subject
		})
		if i >= 0 {
			change := &planned.Changes[i]
			a.refused = e.refusal(ctx, planned.Plan(), *change)
			if _, isCopy := sourceOf(change); isCopy {
				a.delay = populate.ReportedDelay(index.Get(change.Template))
			}
			return change, index
		}
		addFindings(a, planned)
		if live != nil {
			a.leftAlone = unplanned(index, ns, live, compared.Unreadable)
		} else {
			a.expected = coming(index, ns, id)
		}
	}
	return nil, index
}

// refusal returns why 'kubectl nstpl restore' would refuse an object that driftPolicy Report leaves as it is. It
// returns "" if it would not, or if that cannot be read.
func (e *explainer) refusal(ctx context.Context, plan populate.Plan, change populate.Change) string {
	if change.Action != populate.LeaveAlone || !change.Drifted {
		return ""
	}
	refused := e.cluster.Applier().MayRestore(ctx, plan, []populate.ObjectID{change.ID()})
	if refused == nil {
		return ""
	}
	if survey.RefusesRestore(refused.Failure) {
		return refused.Failure.Error()
	}
	e.isUnread(refused.Failure, fmt.Sprintf("roles and rolebindings in namespace %s, so it is unknown whether %s can be "+
		"restored", plan.Namespace.Name, change.ID()), "")
	return ""
}

// unplanned returns why the operator leaves an object as it is that has the label of a template, and that it would not
// change. It returns "" if that is unknown.
func unplanned(
	index *match.Index, ns *corev1.Namespace, live *unstructured.Unstructured, unreadable []survey.Unreadable,
) string {
	id := populate.ObjectID{GroupKind: live.GroupVersionKind().GroupKind(), Name: live.GetName()}
	name := live.GetLabels()[v1alpha1.TemplateNameLabel]
	template, condition := index.Get(name), populate.PopulatedCondition(ns)
	switch {
	case name == "":
		return ""
	case template == nil:
		return fmt.Sprintf("template %s does not exist", name)
	case slices.ContainsFunc(unreadable, func(u survey.Unreadable) bool { return u.Kind == id.GroupKind }):
		return ""
	case !slices.Contains(template.Status.Kinds, v1alpha1.GroupKind{Group: id.Group, Kind: id.Kind}):
		return fmt.Sprintf("template %s never applied a %s", name, id.Kind)
	}
	if declared := coming(index, ns, id); declared != "" {
		return "it remains, because " + declared
	}
	if condition != nil && populate.IsMisplacement(condition.Reason) {
		return "no template declares it, and the operator deletes nothing until the place of the namespace in the " +
			"hierarchy of policy spaces is known: " + condition.Message
	}
	return ""
}

// coming returns which revision of a template declares an object and has not reached the namespace, or "".
func coming(index *match.Index, ns *corev1.Namespace, id populate.ObjectID) string {
	for _, template := range index.Ahead(ns) {
		if declared, _ := survey.DeclaredBy(template, ns); slices.Contains(declared, id) {
			return fmt.Sprintf("revision %d of template %s declares it, which has not reached the namespace",
				index.Layers(template.Name)[0].Revision, template.Name)
		}
	}
	return ""
}

// addReported adds what the operator last reported about an object, for a caller who may not read templates.
func (a *answer) addReported(condition *corev1.NamespaceCondition, id populate.ObjectID, exists bool) {
	every := func(populate.Reported) bool { return true }
	reported := reportedAs(populate.ReportedFindings(condition), id, every)
	switch {
	case reported == nil:
	case exists:
		a.add(labelState, reported.Message)
	default:
		a.expected = "the operator last reported: " + reported.Message
	}
}

// addFindings adds what keeps templates from being rendered, since one of them may declare the object.
func addFindings(a *answer, planned survey.Namespace) {
	for _, broken := range planned.BrokenTemplates() {
		a.add(labelState, fmt.Sprintf("template %s, which may declare it, cannot be rendered: %s", broken.Template,
			broken.Message))
	}
}

// addDeclaration adds which template declares an object: its revision, its policy space, and its tree.
func addDeclaration(a *answer, change *populate.Change, index *match.Index) {
	if change.Undeclared || change.Declared == nil && change.Template == "" {
		return
	}
	text := "template " + change.Template
	template := index.Get(change.Template)
	if template == nil {
		a.add(labelDeclaredBy, text+", which no longer exists")
		return
	}
	if change.Declared == nil && (change.Deletes() || change.Protected) {
		a.add(labelDeclaredBy, text+" declared it earlier")
		return
	}
	if change.Declared != nil {
		if source, isCopy := sourceOf(change); isCopy {
			text += ", as a copy of " + source.String()
		}
		for _, layer := range index.Layers(change.Template) {
			if layer.Template.Generation == change.Declared.Template.Generation && layer.Revision > 0 {
				text += fmt.Sprintf(", revision %d", layer.Revision)
			}
		}
	}
	if selector, err := match.Selector(template.Spec.Namespaces); err == nil {
		if space, isOfSpace := strings.CutSuffix(selector.String(), v1alpha1.DepthLabelSuffix); isOfSpace {
			text += ", inherited from policy space " + space
		}
	}
	if tree := template.Labels[v1alpha1.TreeLabel]; tree != "" {
		text += ", compiled from the tree " + tree
	}
	a.add(labelDeclaredBy, text)
}

// explainChange sets the summary by what the operator would do with an object, and adds what to do.
func (e *explainer) explainChange(
	ctx context.Context, a *answer, change *populate.Change, live *unstructured.Unstructured,
) {
	template := change.Template
	edit := fmt.Sprintf("To change it, edit template %s. To change it in this namespace only, exempt it with %s.",
		template, a.exemptCommand(template))
	if source, isCopy := sourceOf(change); isCopy {
		edit = fmt.Sprintf("To change it, change its source, %s. The operator updates the copy. Or edit template %s.", source,
			template)
	}
	if change.Declared != nil && change.Declared.Template.Spec.DriftPolicy != v1alpha1.DriftReport {
		edit += " The operator reverts other changes of declared fields."
	}
	if live != nil {
		addProtection(a, live)
	}
	if change.Protected {
		a.Summary, a.Codes = a.where()+" "+change.Reason, []codes.Code{codes.DeletionProtected}
		a.add(labelRemedy, fmt.Sprintf("To have it deleted, remove the protection with 'kubectl annotate %s -n %s %s-'.",
			a.Subject, a.Namespace, v1alpha1.DeletionProtectionAnnotation))
		return
	}
	switch change.Action {
	case populate.Unchanged:
		a.Summary = fmt.Sprintf("%s is as template %s declares it", a.where(), template)
		a.addFought(e.condition(ctx, a.Namespace), change.ID())
		a.add(labelRemedy, edit)
	case populate.Create:
		e.explainMissing(ctx, a, change)
	case populate.Configure:
		e.explainDiffering(ctx, a, change, live)
		a.add(labelRemedy, edit)
	case populate.Prune, populate.Empty:
		a.explainDeleted(populate.ReportedFindings(e.condition(ctx, a.Namespace)), change)
	case populate.LeaveAlone:
		if change.Exemption != nil {
			explainExemption(a, change, live != nil)
			break
		}
		a.Summary = a.where() + " is left alone by the operator: " + change.Reason
		if live == nil {
			a.Summary = fmt.Sprintf("%s does not exist, although template %s declares it: %s", a.where(), template,
				change.Reason)
		}
		if change.Drifted {
			e.addDifferences(ctx, a, change, live)
			a.add(labelRemedy, driftRemedy(a, template, live != nil))
		}
		a.add(labelRemedy, fmt.Sprintf("'kubectl nstpl diff %s' shows the differences from the templates.", a.Namespace))
	case populate.Unknown:
		a.Summary = fmt.Sprintf("%s is declared by template %s, but cannot be compared with it", a.where(), template)
		a.add(labelState, change.Reason)
		a.add(labelRemedy, edit)
	}
	if live != nil && live.GetAnnotations()[v1alpha1.AdoptedAnnotation] == "true" {
		a.add(labelState, "adopted: it existed before nstpl managed it, so it is never deleted")
	}
}

// driftRemedy says what to do about a change that the operator does not correct.
func driftRemedy(a *answer, template string, exists bool) string {
	restore := fmt.Sprintf("To take the change back, run 'kubectl nstpl restore %s -n %s', which takes the verb patch on "+
		"namespacetemplates/%s.", a.Subject, a.Namespace, template)
	if a.refused != "" {
		restore = "It cannot be restored now: " + a.refused + "."
	}
	restore += fmt.Sprintf(" To accept the change here, exempt the object with %s.", a.exemptCommand(template))
	if !exists {
		return restore
	}
	return restore + fmt.Sprintf(" To accept it everywhere, change template %s as 'kubectl nstpl accept %s -n %s' says.",
		template, a.Subject, a.Namespace)
}

// explainExemption explains an object that the operator leaves alone because of an exemption.
func explainExemption(a *answer, change *populate.Change, exists bool) {
	a.leftAlone = "it " + change.Reason
	a.Summary = fmt.Sprintf("%s is left alone by the operator: %s", a.where(), a.leftAlone)
	if !exists {
		a.add(labelState, "it does not exist, and the operator does not create it")
	}
	addExemptionRemedy(a, change.Template, change.Exemption.Name)
}

// sourceOf returns the source of which a declared object is a copy, and whether it is one.
func sourceOf(change *populate.Change) (source render.SourceRef, isCopy bool) {
	if change.Declared == nil {
		return source, false
	}
	return render.SourceOf(change.Declared.Unstructured)
}

// explainMissing explains an object that templates declare and that does not exist, or that is not managed yet.
func (e *explainer) explainMissing(ctx context.Context, a *answer, change *populate.Change) {
	if change.Observed != nil {
		a.Summary = fmt.Sprintf("%s exists but is not managed by nstpl yet: template %s declares it", a.where(),
			change.Template)
	} else {
		a.Summary = fmt.Sprintf("%s does not exist, although template %s declares it", a.where(), change.Template)
	}
	a.add(labelState, change.Reason)
	ns, err := e.cluster.Namespace(ctx, a.Namespace)
	if err != nil {
		return
	}
	if condition := populate.PopulatedCondition(ns); condition != nil && condition.Status == corev1.ConditionFalse {
		a.add(labelState, condition.Reason+": "+condition.Message)
	}
	if change.Observed != nil {
		a.add(labelRemedy, "Resolve what the state names. The operator adopts the object by itself then.")
		return
	}
	a.add(labelRemedy, "Resolve what the state names. The operator creates the object by itself then. If it names "+
		"nothing, check that the operator is running with 'kubectl nstpl version'.")
}

// addDifferences adds the fields that differ from the declaration.
func (e *explainer) addDifferences(
	ctx context.Context, a *answer, change *populate.Change, live *unstructured.Unstructured,
) {
	if live == nil {
		return
	}
	sides, err := survey.DryRunOn(ctx, e.cluster, a.Namespace, *change, live)
	if err != nil {
		e.noteOnce("the fields that differ are unknown: %v", err)
		return
	}
	addDrift(a, sides)
}

// addOrigin adds who created an object, as far as its metadata says.
func addOrigin(a *answer, live *unstructured.Unstructured) {
	for _, owner := range live.GetOwnerReferences() {
		a.add(labelCreatedBy,
			fmt.Sprintf("the controller of %s/%s, which owns it", strings.ToLower(owner.Kind), owner.Name))
	}
	entries := live.GetManagedFields()
	created := live.GetCreationTimestamp()
	i := slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && entry.Time != nil && entry.Time.Equal(&created)
	})
	if i < 0 {
		return
	}
	switch {
	case !populate.IsOwnEntry(&entries[i]):
		a.add(labelCreatedBy, "the client with the field manager "+entries[i].Manager)
	case populate.Ours(live):
		a.add(labelCreatedBy, "the operator")
	}
}

// explainByMetadata sets the summary of an object of which no declaration is known, by its labels and annotations.
func explainByMetadata(a *answer, live *unstructured.Unstructured) {
	template, tree := live.GetLabels()[v1alpha1.TemplateNameLabel], live.GetLabels()[v1alpha1.TreeLabel]
	switch {
	case live.GetKind() == "ResourceQuota" && live.GetName() == v1alpha1.QuotaName:
		a.Summary = a.where() + " counts usage for the quotas of policy spaces, and is managed by the operator"
		a.add(labelRemedy, "Leave it as it is. Its own limits are not enforced.")
	case template != "" && a.unpopulated != "":
		a.Summary = fmt.Sprintf("%s has the label of template %s, and the operator leaves it as it is", a.where(), template)
	case template != "" && a.leftAlone != "":
		a.Summary = fmt.Sprintf("%s has the label of template %s, and the operator leaves it as it is: %s", a.where(),
			template, a.leftAlone)
	case template != "":
		a.Summary = fmt.Sprintf("%s is managed by nstpl: template %s declares it", a.where(), template)
		a.add(labelDeclaredBy, "template "+template+", according to the label "+v1alpha1.TemplateNameLabel)
		remedy := "Ask an administrator to change the template. Unless its driftPolicy is Report, the operator reverts " +
			"changes of declared fields."
		if a.lacksExemptions {
			remedy += " It does not if an exemption applies, which is unknown."
		}
		a.add(labelRemedy, remedy)
	case tree != "":
		a.Summary = fmt.Sprintf("%s is compiled from the tree %s", a.Subject, tree)
		a.add(labelRemedy, "Change the files of the tree, and apply them again.")
	default:
		a.Summary = a.where() + " is not managed by nstpl"
	}
}
