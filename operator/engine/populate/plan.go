package populate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Action is what a plan does with an object.
type Action string

// The actions of a plan.
const (
	// Create applies an object that does not exist, or that exists and is not managed by nstpl yet.
	Create Action = "create"
	// Configure applies an object whose declaration changed, or that drifted.
	Configure Action = "configure"
	// Unchanged does nothing: the object is as declared.
	Unchanged Action = "unchanged"
	// Prune deletes an object that is no longer declared.
	Prune Action = "prune"
	// Empty removes the subjects of a RoleBinding, or the rules of a Role, that is being deleted and has a finalizer.
	Empty Action = "empty"
	// LeaveAlone does nothing, and the change's Reason says why.
	LeaveAlone Action = "leave alone"
	// Unknown does nothing, because the effect of an apply cannot be predicted.
	Unknown Action = "unknown"
)

// Observed holds the objects that exist in a namespace.
type Observed struct {
	// Objects are the metadata of all objects that have a template's label, also if a user set it.
	Objects []*metav1.PartialObjectMetadata
	// Others are the metadata of objects without such a label. They are of declared kinds, or of kinds for which a
	// template is authoritative.
	Others []*metav1.PartialObjectMetadata
	// Lost are the last known metadata of objects that another client deleted, or whose template's label it removed,
	// while the operator watched.
	Lost map[ObjectID]*metav1.PartialObjectMetadata
	// Unreadable holds, for each kind whose objects are unknown, the reason.
	Unreadable map[schema.GroupKind]error
	// Unconfirmed are objects that may be stored otherwise than declared: see Result.Unconfirmed.
	Unconfirmed []ObjectID
	// Tampered are the UIDs of objects on which another client wrote the managedFields entry of nstpl since the last
	// apply.
	Tampered map[types.UID]bool
}

// readable returns the observed objects without those of unreadable kinds, of which some may be known: a list ended
// half way, or one of two lists failed. Nothing is planned for them.
func (o Observed) readable() Observed {
	isUnreadable := func(object *metav1.PartialObjectMetadata) bool {
		return o.Unreadable[object.GroupVersionKind().GroupKind()] != nil
	}
	if len(o.Unreadable) > 0 {
		o.Objects = slices.DeleteFunc(slices.Clone(o.Objects), isUnreadable)
		o.Others = slices.DeleteFunc(slices.Clone(o.Others), isUnreadable)
	}
	return o
}

// Change is what a plan does with one object, and why.
type Change struct {
	Action   Action
	Kind     schema.GroupVersionKind
	Name     string
	Template string
	Reason   string
	// Drifted says that another client changed or deleted the object after nstpl had applied it.
	Drifted bool
	// Postponed says that the correction waits, because another client changes the object again and again.
	Postponed bool
	// Undeclared says that no template declares the object, and that it is deleted or reported because a template is
	// authoritative for its kind.
	Undeclared bool
	// Occupied says that another client's object of the same name may be deleted, because a template is authoritative
	// for the kind.
	Occupied bool
	// Overwrites is what other clients did to the object, and what driftPolicy Report has left until its declaration
	// changed.
	Overwrites string
	// Declared is the object to apply; nil if it is not declared.
	Declared *Object
	// Observed is the object's metadata; nil if it does not exist.
	Observed *metav1.PartialObjectMetadata
	// Lost is the object's last known metadata before another client deleted it or removed its label; nil if unknown.
	Lost *metav1.PartialObjectMetadata
	// Populated says that the namespace had the object before, as its ExistingAnnotation records, and Adopted that the
	// object was adopted then.
	Populated, Adopted bool
	// Protected says that the object would be deleted if the last applied declaration did not protect it from deletion.
	Protected bool
	// SourceLost is the declaration of a copy that is deleted because its source is lost; nil otherwise.
	SourceLost *Object
	// Err is why the object cannot be applied; nil unless Action is Unknown.
	Err error
	// Exemption says why the object is left alone; nil unless the namespace is exempt from it.
	Exemption *v1alpha1.TemplateExemption
	// Metadata are the changes of the namespace's own labels and annotations; nil for all other objects. Template then
	// has the names of all their templates, separated by commas.
	Metadata *MetadataChange
}

// ID returns the ID of the object.
func (c Change) ID() ObjectID {
	return ObjectID{GroupKind: c.Kind.GroupKind(), Name: c.Name}
}

// replacesOwn reports whether an object that another client created under the declared name is in place of one that
// the namespace had from a template. Such an object is not adopted. Otherwise an owner could delete a RoleBinding,
// create it again, and keep it when the template revokes it.
func (c Change) replacesOwn(existing metav1.Object) bool {
	return (c.Populated || c.Lost != nil) && !c.isAdopted(existing)
}

// isAdopted reports whether an object existed before nstpl managed it, or is in place of one that did. An object
// without a template's label does not say that itself, since every user may write its annotations.
func (c Change) isAdopted(existing metav1.Object) bool {
	if existing.GetLabels()[v1alpha1.TemplateNameLabel] != "" {
		return recordOf(existing).adopted
	}
	return c.Adopted || c.Lost != nil && recordOf(c.Lost).adopted
}

// KeepsGrant reports whether a Role or RoleBinding that the namespace had from a template stays, although no template
// declares it.
func (c Change) KeepsGrant() bool {
	return c.Action == LeaveAlone && c.Declared == nil && c.Observed != nil && c.Exemption == nil &&
		(ownEntry(c.Observed) != nil || Ours(c.Observed) || c.Populated) && isRBAC(c.Kind.GroupKind())
}

// Deletes reports whether the change deletes the object or removes the rights that it grants.
func (c Change) Deletes() bool { return c.Action == Prune || c.Action == Empty }

// Differs reports whether another client made the object differ from the templates. The plan may correct or only report
// the difference.
func (c Change) Differs() bool { return c.Drifted || c.Undeclared }

// Of returns the change without the labels and annotations of other templates. It reports false if nothing is left: the
// change is about an object of another template.
func (c Change) Of(template string) (of Change, isOf bool) {
	if c.Metadata == nil {
		return c, c.Template == template
	}
	isOfAnother := func(v ValueChange) bool { return v.Template != template }
	values := slices.DeleteFunc(slices.Clone(c.Metadata.Values), isOfAnother)
	return c.Metadata.of(values), len(values) > 0
}

// MayDelete reports whether Apply may delete the object: to prune it, to replace it, or because the Role of a
// RoleBinding is not as declared.
func (c Change) MayDelete() bool {
	return c.Deletes() || c.Action == Configure || c.Kind.GroupKind() == bindingKind
}

// Plan holds the changes by which Apply populates a namespace.
type Plan struct {
	Declared
	Changes []Change
	// postponed are the changes that WithoutDeletions has left out.
	postponed []Change
}

// NewPlan compares the declared objects with those that exist. The index holds all templates, also those that do not
// select the namespace.
func NewPlan(declared Declared, index *match.Index, observed Observed) Plan {
	observed = observed.readable()
	labelled := map[ObjectID]*metav1.PartialObjectMetadata{}
	for _, object := range observed.Objects {
		labelled[render.IDOf(object)] = object
	}
	declared.keep(labelled)
	plan := Plan{Declared: declared}
	others := map[ObjectID]*metav1.PartialObjectMetadata{}
	for _, object := range observed.Others {
		others[render.IDOf(object)] = object
	}
	if change, isPlanned := planMetadata(declared, index); isPlanned {
		plan.Changes = append(plan.Changes, change)
	}
	recorded, reported := existingIn(plan), ReportedFindings(PopulatedCondition(declared.Namespace))
	unconfirmed := unconfirmedIn(reported, observed.Unconfirmed)
	for i := range declared.Objects {
		object := &declared.Objects[i]
		existing := cmp.Or(labelled[object.ID()], others[object.ID()])
		isPopulated := recorded.populatedBy(object.ID()) != ""
		had := Change{
			Populated: isPopulated || recorded.byKey[formerKey][populatedDigest(object.ID())],
			Adopted:   recorded.adoptedBy(object.ID()), Lost: observed.Lost[object.ID()],
		}
		var change Change
		switch err := observed.Unreadable[object.ID().GroupKind]; {
		case err != nil:
			change = Change{
				Action: Unknown, Kind: object.GroupVersionKind(), Name: object.GetName(),
				Template: object.Template.Name, Reason: err.Error(), Declared: object, Err: err,
			}
		case object.Unavailable != nil:
			change = planUnavailable(declared, object, existing)
		default:
			object = keepProtection(object, existing)
			isReplaced := isPopulated && existing != nil && !had.isAdopted(existing)
			change = compare(object, existing, had.Lost, recorded.has(object) || isReplaced).asDeclaredNow(recorded)
			if existing != nil && observed.Tampered[existing.UID] && change.Action == Unchanged {
				change = Drift(change, "its managedFields were written by another client under the name of nstpl")
			}
			change = unconfirmed.confirm(change).overwriting(reported)
			change.Occupied = change.Observed != nil && ownEntry(change.Observed) == nil &&
				deletes(declared, object.ID().GroupKind)
		}
		change.Populated, change.Adopted = had.Populated, had.Adopted
		plan.Changes = append(plan.Changes, change)
		delete(labelled, object.ID())
	}
	for _, overridden := range declared.Overridden {
		plan.Changes = append(plan.Changes, Change{
			Action: LeaveAlone, Kind: overridden.Object.GroupKind.WithVersion(""), Name: overridden.Object.Name,
			Template: overridden.Template,
			Reason:   overridden.reason(),
		})
	}
	for _, w := range declared.Withheld {
		if labelled[w.Object.ID()] == nil {
			plan.Changes = append(plan.Changes, Change{
				Action: LeaveAlone, Kind: w.Object.GroupVersionKind(), Name: w.Object.GetName(),
				Template: w.Object.Template.Name, Reason: w.Reason(),
			})
		}
	}
	for _, exempt := range declared.Exempt {
		existing := cmp.Or(labelled[exempt.ID()], others[exempt.ID()])
		isOfAnother := existing != nil && !slices.Contains([]string{"", exempt.Template}, labelOf(existing))
		if plan.has(exempt.ID()) || isOfAnother {
			plan.Changes = append(plan.Changes, exemptChange(exempt, nil, recorded))
			continue
		}
		plan.Changes = append(plan.Changes, exemptChange(exempt, existing, recorded))
		delete(labelled, exempt.ID())
	}
	for _, omission := range declared.Omitted {
		plan.Changes = append(plan.Changes, Change{
			Action: LeaveAlone, Kind: omission.Kind, Name: omission.Name, Template: omission.Template,
			Reason: omission.Reason,
		})
	}
	for _, object := range observed.Objects {
		if labelled[render.IDOf(object)] == object {
			change := undeclared(declared, index, object)
			change.Populated = !change.Undeclared && recorded.populatedBy(change.ID()) != ""
			plan.Changes = append(plan.Changes, keepProtected(declared, change))
		}
	}
	planned := map[ObjectID]bool{} // users create any number of the others
	for _, change := range plan.Changes {
		planned[change.ID()] = true
	}
	for _, object := range observed.Others {
		change, template := unlabelled(declared, object), ""
		if isRBAC(render.IDOf(object).GroupKind) {
			template = recorded.populatedBy(render.IDOf(object))
		}
		if template != "" {
			change = keepProtected(declared, replacedGrant(declared, index, object, template))
		}
		if (template != "" || change.Undeclared) && !planned[render.IDOf(object)] {
			plan.Changes = append(plan.Changes, change)
		}
	}
	return plan
}

// WithoutDeletions returns the plan for a namespace whose place in the hierarchy of policy spaces is unknown: without
// the changes that delete objects, since what replaces them may be where the namespace belongs. Users choose the place,
// so a grant that a template takes away independent of it is deleted all the same.
func (p Plan) WithoutDeletions(index *match.Index) Plan {
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		isPostponed := c.Deletes() && !p.revokesEverywhere(c, index)
		if isPostponed {
			p.postponed = append(p.postponed, c)
		}
		return isPostponed
	})
	p.keepMetadata(func(render.MetadataKey) bool { return true }, "remains until the namespace's place is known")
	return p
}

// revokesEverywhere reports whether a change takes a grant away wherever the namespace may belong: its template selects
// the namespace and does not declare the grant any more, or does not select by depth labels.
func (p Plan) revokesEverywhere(c Change, index *match.Index) bool {
	template := index.Get(c.Template)
	if template == nil || !isRBAC(c.Kind.GroupKind()) {
		return false
	}
	isSelecting := slices.ContainsFunc(p.Templates, func(t *v1alpha1.NamespaceTemplate) bool {
		return t.Name == c.Template
	})
	return isSelecting && !c.Undeclared || !SelectsByDepth(template.Spec.Namespaces.LabelSelector)
}

// SelectsByDepth reports whether a selector, which may be nil, has a depth label.
func SelectsByDepth(selector *metav1.LabelSelector) bool {
	isDepth := func(key string) bool { return strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) }
	return selector != nil && (slices.ContainsFunc(slices.Collect(maps.Keys(selector.MatchLabels)), isDepth) ||
		slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return isDepth(r.Key)
		}))
}

// keepMetadata leaves out the removal of some labels and annotations of the namespace. It changes the changes.
func (p Plan) keepMetadata(keep func(render.MetadataKey) bool, reason string) {
	for i := range p.Changes {
		if metadata := p.Changes[i].Metadata; metadata != nil {
			p.Changes[i] = metadata.keeping(keep, reason)
		}
	}
}

// Keeping returns the plan without the deletion of objects that are declared elsewhere: by revisions of templates whose
// rollout has not reached the namespace. An object that moves from one template to another would otherwise be missing
// for a while. A Role or a RoleBinding is left out only if it moves unchanged, since it may grant more otherwise. The
// copies of lost sources are deleted all the same.
func (p Plan) Keeping(cache *render.Cache, coming []*v1alpha1.NamespaceTemplate) Plan {
	mayKeep := func(c Change) bool { return c.Deletes() || c.Metadata != nil }
	if len(coming) == 0 || !slices.ContainsFunc(p.Changes, mayKeep) {
		return p
	}
	next := Declare(cache, p.Namespace, coming, p.inputs.unguarded())
	declared := map[ObjectID]Object{}
	for _, object := range next.Objects {
		declared[object.ID()] = object
	}
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		coming, isDeclared := declared[c.ID()]
		return c.Deletes() && c.SourceLost == nil && isDeclared &&
			(!isRBAC(c.Kind.GroupKind()) || isMovedUnchanged(c.Observed, coming))
	})
	p.keepMetadata(func(key render.MetadataKey) bool {
		return slices.ContainsFunc(next.Metadata, func(v DeclaredValue) bool { return v.MetadataKey == key })
	}, "remains, because a revision declares it that has not reached the namespace")
	return p
}

// has reports whether the plan has a change for an object. A declared object that lost its label is also in
// Observed.Others.
func (p Plan) has(id ObjectID) bool {
	return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.ID() == id })
}

// compare plans a declared object. The parameter existed says that the object is recorded as existing before.
func compare(object *Object, observed, lost *metav1.PartialObjectMetadata, existed bool) Change {
	change := Change{
		Kind: object.GroupVersionKind(), Name: object.GetName(), Template: object.Template.Name,
		Declared: object, Observed: observed, Lost: lost,
	}
	var entry *metav1.ManagedFieldsEntry
	if observed != nil {
		entry = ownEntry(observed)
	}
	switch {
	case entry == nil && observed != nil && Ours(observed):
		return Drift(change, "its managedFields were reset")
	case entry == nil && (existed || lost != nil):
		change = Drift(change, "another client deleted it or removed its label")
		if change.Action == Configure {
			change.Action = Create
		}
		return change
	case observed == nil:
		change.Action, change.Reason = Create, "does not exist"
		return change
	case entry == nil:
		change.Action, change.Reason = Create, "exists but is not managed by nstpl yet"
		return change
	}
	owned, err := ownedFields(entry)
	isHashOwned := err == nil && owned.hasHash()
	if observed.Annotations[v1alpha1.HashAnnotation] != object.Hash && isHashOwned {
		change.Action, change.Reason = Configure, reasonDeclarationChanged
		return change
	}
	unowned := owned.lostOf(object.Object)
	missing := without(unowned, recordOf(observed).unowned)
	switch {
	case err != nil:
		return Drift(change, "its managedFields can't be read: "+err.Error())
	case len(missing) > 0:
		if object.isCopy() {
			missing = withoutItems(missing)
		}
		return Drift(change, lostReason(missing, observed))
	case !isHashOwned:
		return Drift(change, "its annotation "+v1alpha1.HashAnnotation+" was changed")
	case joinFields(unowned) != joinFields(splitFields(recordOf(observed).unowned)):
		change.Action, change.Reason = Configure, "its annotation "+v1alpha1.UnownedAnnotation+" is out of date"
		return change
	}
	if manager := madeImmutableBy(object, observed); manager != "" {
		change = Drift(change, manager+" made it immutable, so it keeps its content until it is deleted")
		change.Action = LeaveAlone
		return change
	}
	change.Action, change.Reason = Unchanged, "is as declared"
	return change
}

const reasonDeclarationChanged = "its declaration changed"

// isLeftDeleted reports whether the object is missing, and driftPolicy Report leaves it so.
func (c Change) isLeftDeleted() bool {
	return c.Action == LeaveAlone && c.Drifted &&
		(c.Observed == nil || ownEntry(c.Observed) == nil && !Ours(c.Observed))
}

// asDeclaredNow returns the change of an object that driftPolicy Report would leave as it is. A declaration that was
// not applied before is applied. The managedFields of the object may not show that, since users may remove fields from
// them.
func (c Change) asDeclaredNow(recorded existing) Change {
	isReport := c.Declared.Template.Spec.DriftPolicy == v1alpha1.DriftReport
	if c.Action != LeaveAlone || !c.Drifted || !isReport || recorded.knows(c) {
		return c
	}
	c.Action, c.Drifted, c.Reason = c.correction(), false, reasonDeclarationChanged
	return c
}

// correction returns the action that applies an object which driftPolicy Report leaves as it is.
func (c Change) correction() Action {
	if c.isLeftDeleted() {
		return Create
	}
	return Configure
}

// overwritingReason returns the reason of a change by a new declaration that undoes what another client did.
func overwritingReason(what string) string {
	return reasonDeclarationChanged + ", so it overwrites what driftPolicy Report left: " + what
}

// overwriting returns a change by a new declaration with what it overwrites, as the last report on the namespace has
// it.
func (c Change) overwriting(reported []Reported) Change {
	if c.Drifted || c.Reason != reasonDeclarationChanged {
		return c
	}
	for _, finding := range reported {
		if finding.Reason == FindingDrifted && finding.Object == c.ID().String() {
			c.Overwrites = strings.TrimSuffix(finding.Cause(), driftIsReported)
			c.Reason = overwritingReason(c.Overwrites)
		}
	}
	return c
}

const driftIsReported = "; driftPolicy is Report"

// Drift plans a declared object that another client made differ from its declaration, for a reason.
func Drift(change Change, reason string) Change {
	change.Drifted = true
	change.Action, change.Reason = driftAction(change.Declared.Template, reason)
	return change
}

// driftAction returns what nstpl does about drift, which the driftPolicy of the template decides, and the reason.
func driftAction(template *v1alpha1.NamespaceTemplate, reason string) (Action, string) {
	if template.Spec.DriftPolicy == v1alpha1.DriftReport {
		return LeaveAlone, reason + driftIsReported
	}
	return Configure, reason
}

// without returns the lost fields except those that are recorded as never having an owner.
func without(lost []string, unowned string) []string {
	neverOwned := splitFields(unowned)
	return slices.DeleteFunc(slices.Clone(lost), func(field string) bool { return slices.Contains(neverOwned, field) })
}

// hasHash reports whether the set has the applied-hash annotation: nstpl was the last client that wrote it.
func (s fieldSet) hasHash() bool { return s.hasAnnotation(v1alpha1.HashAnnotation) }

// lostReason returns the fields that were changed and the managers that may have changed them.
func lostReason(lost []string, observed *metav1.PartialObjectMetadata) string {
	const most = 3
	fields := strings.Join(lost[:min(len(lost), most)], ", ")
	if more := len(lost) - most; more > 0 {
		fields += fmt.Sprintf(" and %d more", more)
	}
	others := otherManagers(observed)
	if len(others) == 0 {
		return fields + " changed"
	}
	return fields + " changed by " + strings.Join(others, " or ")
}

// undeclared plans an object that has a template's label and is not declared. The object is pruned only if nstpl
// created it, and if its template no longer declares it, or no longer matches and has the deletionPolicy Delete.
func undeclared(declared Declared, index *match.Index, object *metav1.PartialObjectMetadata) Change {
	change := Change{
		Action: LeaveAlone, Kind: object.GroupVersionKind(), Name: object.Name, Template: labelOf(object),
		Observed: object,
	}
	switch {
	case !Ours(object) && ownEntry(object) == nil && !recordOf(object).adopted:
		change.Reason = "has a template's label, but nstpl did not create it"
		return planUndeclared(declared, change)
	case !Ours(object) && !index.IsOutside(declared.Namespace, change.Template):
		change.Reason = "existed before nstpl managed it"
		return planUndeclared(declared, change)
	}
	return noLonger(declared, index, change)
}

// replacedGrant plans a Role or RoleBinding that another client created in place of one that the namespace had from a
// template, and that is not declared any more. It is treated as the template's own.
func replacedGrant(
	declared Declared, index *match.Index, object *metav1.PartialObjectMetadata, template string,
) Change {
	return noLonger(declared, index, Change{
		Action: LeaveAlone, Kind: object.GroupVersionKind(), Name: object.Name, Template: template, Observed: object,
		Populated: true,
	})
}

// noLonger plans an object of a template that is not declared.
func noLonger(declared Declared, index *match.Index, change Change) Change {
	kind, name := change.Kind, change.Template
	template := index.Get(name)
	exemption := declared.inputs.Exemptions.OfObject(name, kind.GroupKind(), change.Name)
	switch {
	case template == nil:
		change.Reason = fmt.Sprintf("template %s does not exist", name)
		return planUndeclared(declared, change)
	case index.IsOutside(declared.Namespace, name):
		change.Reason = unmatched(template, declared)
	case exemption != nil:
		change.Reason, change.Exemption = match.ExemptionReason(exemption), exemption
	case !isRBAC(kind.GroupKind()) &&
		!slices.Contains(template.Status.Kinds, v1alpha1.GroupKind{Group: kind.Group, Kind: kind.Kind}):
		// An earlier template of that name may have applied it, and was deleted. A RoleBinding of that one could bind a
		// Role of this one.
		change.Reason = fmt.Sprintf("template %s never applied a %s", name, kind.Kind)
		return planUndeclared(declared, change)
	case declared.broken(name, change.ID()) != "":
		change.Reason = fmt.Sprintf("template %s can't be rendered", name)
	case declared.omits(name, change.ID()):
		change.Reason = fmt.Sprintf("template %s may declare it once the namespace's creator is known", name)
	case declared.keeps(change.ID()):
		change.Reason = fmt.Sprintf("it remains until the rollout of template %s reaches the namespace", name)
	case slices.ContainsFunc(declared.Templates, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == name }):
		change.Action, change.Reason = Prune, noLongerDeclared(declared, change.ID(), name)
	default:
		change.Reason = unmatched(template, declared)
		if template.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
			change.Action = Prune
		} else {
			change.Reason += "; deletionPolicy is Orphan"
		}
	}
	return beingDeleted(change)
}

func noLongerDeclared(declared Declared, id ObjectID, template string) string {
	for _, w := range declared.Withheld {
		if w.Object.ID() == id {
			return w.Reason()
		}
	}
	if declared.revoked[id] {
		return fmt.Sprintf("the newest revision of template %s takes it away", template)
	}
	return fmt.Sprintf("template %s no longer declares it", template)
}

// beingDeleted replaces the pruning of an object that is already being deleted. An RBAC object with a finalizer is
// emptied, because it grants rights as long as it exists. Any other object is left alone.
func beingDeleted(change Change) Change {
	if change.Action != Prune || change.Observed.DeletionTimestamp == nil {
		return change
	}
	if change.Action = LeaveAlone; isRBAC(change.Kind.GroupKind()) && hasFinalizers(change.Observed) {
		change.Action = Empty
	}
	change.Reason = "is being deleted: " + change.Reason
	return change
}

func unmatched(template *v1alpha1.NamespaceTemplate, declared Declared) string {
	return fmt.Sprintf("template %s no longer matches: %s", template.Name,
		declared.inputs.Exemptions.Apply(match.Explain(template, declared.Namespace)).Reason)
}
