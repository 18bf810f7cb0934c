package inventory

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// State is what exists in the cluster.
type State struct {
	// Live are all objects of the kinds that trees declare.
	Live map[ID]*unstructured.Unstructured
	// Created are the UIDs of the objects that were created for the tree.
	Created map[types.UID]bool
	// Undecided are objects that another tree may take over. They are not deleted yet.
	Undecided map[ID]bool
	// Deletions are the decisions of the plan before.
	Deletions Deletions
}

// Options say what a plan may do.
type Options struct {
	// Tree is the name of the tree.
	Tree string
	// Adopt makes declared namespaces that exist already a part of the tree.
	Adopt bool
	// Limit limits the deletion of namespaces. It may be nil.
	Limit *v1alpha1.DeletionLimit
	// Confirmed says that a person has confirmed the deletion of the namespaces that wait.
	Confirmed bool
}

// Apply is an object to be applied.
type Apply struct {
	Declared *unstructured.Unstructured
	// Live is the object in the cluster, or nil if the declared one must be created.
	Live *unstructured.Unstructured
	// Replaced is the object that must be deleted before, or nil.
	Replaced *unstructured.Unstructured
	// isPartial is true if the object is to get a part of what a new commit declares, and keeps the hash that it has.
	isPartial bool
}

// Step returns when the object is applied: a step begins when all applies of the steps before it have ended. In each
// phase, objects are created and repaired in a first step, and changed to what a new commit declares in a second
// one: what an object loses by the change may be in one that is created. Namespaces depend on none of each other, and
// those who may change one may make it fail, so all of them are applied in one step.
func (a Apply) Step() int {
	phase := PhaseOf(render.IDOf(a.Declared).GroupKind)
	step := 2 * int(phase)
	if phase == Namespaces {
		return step
	}
	if a.Replaced != nil || a.declaresAnew() {
		step++
	}
	return step
}

// Moves reports whether the object is a namespace or a policyspace that moves from one policyspace to another.
func (a Apply) Moves() bool { return a.Live != nil && parentIn(a.Live) != parentIn(a.Declared) }

// HashOf returns the hash of the declaration from which an object was applied, or that of a declared object.
func HashOf(object *unstructured.Unstructured) string {
	return object.GetAnnotations()[v1alpha1.HashAnnotation]
}

// Conflict is a declared object that cannot be applied.
type Conflict struct {
	ID
	Reason string
	// Passes is true if no person needs to act.
	Passes bool
	// Apply is what the conflict prevents. The live object was created for the tree only if IsOwn is true.
	Apply Apply
	IsOwn bool
}

// Plan is what to do about the objects of a tree.
type Plan struct {
	// Applies are the objects to apply, in the order of the phases.
	Applies []Apply
	// Held are the applies that wait for others, which cannot be made yet, or for a later pass.
	Held []Apply
	// Deletes are the objects to delete after all applies, in the reverse order of the phases: after KeepUsedSpaces,
	// without the policyspaces that are in use.
	Deletes []*unstructured.Unstructured
	// Releases are namespaces that the tree adopted and no longer declares. They lose what was applied to them.
	Releases []*unstructured.Unstructured
	// Deletions must be stored before the plan is carried out, for the next plan.
	Deletions Deletions
	// Waiting are the names of the namespaces that a confirmation would have deleted: neither the protected ones nor
	// those that are being deleted.
	Waiting []string
	// Protected are the names of the namespaces that are not deleted because they are protected from deletion.
	Protected []string
	// Undecided are the objects that are not deleted yet, because another tree may take them over.
	Undecided []ID
	// Used are the names of the policyspaces that are not deleted yet, because namespaces are in or below them.
	Used []string
	// Unmanaged are the names of declared namespaces that exist and are not adopted.
	Unmanaged []string
	// Delayed are the rollouts that do not continue by themselves, or wait between two waves.
	Delayed []Rollout
	// TemplateValues are the labels and annotations of namespaces that stay as templates have set them.
	TemplateValues []TemplateValue
	Conflicts      []Conflict

	// declared and live are the objects of the tree, and those in the cluster.
	declared, live map[ID]*unstructured.Unstructured
}

// NewPlan compares what a tree declares with what exists. The declared objects are those of Declare.
func NewPlan(declared []*unstructured.Unstructured, state State, options Options) Plan {
	declaredAs := map[ID]*unstructured.Unstructured{}
	plan := Plan{declared: declaredAs, live: state.Live}
	for _, object := range declared {
		declaredAs[render.IDOf(object)] = object
		plan.add(object, state, options)
	}
	prevented := make([]Apply, 0, len(plan.Conflicts))
	for _, conflict := range plan.Conflicts {
		prevented = append(prevented, conflict.Apply)
	}
	plan.Applies = plan.Hold(plan.Applies, prevented)
	slices.SortStableFunc(plan.Applies, func(a, b Apply) int { return a.Step() - b.Step() })
	var namespaces []*unstructured.Unstructured
	for id, live := range state.Live {
		switch {
		case declaredAs[id] != nil:
		case id.GroupKind == namespaceKind && state.Created[live.GetUID()]:
			namespaces = append(namespaces, live)
		case state.Created[live.GetUID()] && state.Undecided[id]:
			plan.Undecided = append(plan.Undecided, id)
		case state.Created[live.GetUID()]:
			plan.Deletes = append(plan.Deletes, live)
		case id.GroupKind == namespaceKind && isAdoptedBy(live, options.Tree):
			plan.Releases = append(plan.Releases, live)
		}
	}
	plan.Deletes = slices.DeleteFunc(plan.Deletes, isBeingDeleted)
	plan.deleteNamespaces(namespaces, state, options)
	slices.SortFunc(plan.Undecided, func(a, b ID) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(plan.Deletes, func(a, b *unstructured.Unstructured) int {
		x, y := render.IDOf(a), render.IDOf(b)
		if order := PhaseOf(y.GroupKind) - PhaseOf(x.GroupKind); order != 0 {
			return int(order)
		}
		return strings.Compare(x.String(), y.String())
	})
	slices.SortFunc(plan.Releases, byName)
	return plan
}

func byName(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) }

// isProtected reports whether a namespace is protected from deletion.
func isProtected(ns *unstructured.Unstructured) bool {
	return ns.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] == "true"
}

func isBeingDeleted(object *unstructured.Unstructured) bool {
	return object.GetDeletionTimestamp() != nil
}

// isAdoptedBy reports whether a namespace that existed before became a part of a tree.
func isAdoptedBy(ns *unstructured.Unstructured, tree string) bool {
	return ns.GetLabels()[v1alpha1.TreeLabel] == tree && ns.GetAnnotations()[v1alpha1.HashAnnotation] != ""
}

func (p *Plan) add(object *unstructured.Unstructured, state State, options Options) {
	id := render.IDOf(object)
	live := state.Live[id]
	if live == nil {
		p.Applies = append(p.Applies, Apply{Declared: withMetadataRecord(object, nil)})
		return
	}
	conflict := func(reason string) {
		p.Conflicts = append(p.Conflicts,
			Conflict{
				ID: id, Reason: reason, Passes: isBeingDeleted(live), Apply: Apply{Declared: object, Live: live},
				IsOwn: state.Created[live.GetUID()],
			})
	}
	if isBeingDeleted(live) {
		conflict("is being deleted: it is created again when it is gone")
		return
	}
	if !state.Created[live.GetUID()] {
		switch tree := live.GetLabels()[v1alpha1.TreeLabel]; {
		case tree != "" && tree != options.Tree && !state.wasName(tree):
			conflict(fmt.Sprintf("belongs to the tree %s: rename the declared object, or hand the object over: suspend the "+
				"PolicyRepository of the tree %[1]s, if there still is one, run: kubectl label %s %s=%s --overwrite, remove "+
				"the object from the tree %[1]s, and resume", tree, id, v1alpha1.TreeLabel, options.Tree))
			return
		case id.GroupKind == namespaceKind && options.Adopt:
			object = withAnnotation(object, v1alpha1.AdoptAnnotation, "true")
		case id.GroupKind == namespaceKind && !consents(live):
			p.Unmanaged = append(p.Unmanaged, id.Name)
			return
		case isOfNstpl(id) && tree == "" && live.GetAnnotations()[v1alpha1.AdoptAnnotation] != "true":
			conflict(fmt.Sprintf("existed before the tree %s: delete it, rename the declared object, or annotate it with "+
				"%s=true, which has the tree change it", options.Tree, v1alpha1.AdoptAnnotation))
			return
		}
	}
	if state := Delayed(live); state != "" {
		p.Delayed = append(p.Delayed, Rollout{id.Name, state})
	}
	object, values := withoutTemplateValues(object, live, state.declares)
	p.TemplateValues = append(p.TemplateValues, values...)
	object = withMetadataRecord(object, live)
	switch {
	case IsInForce(object, live):
	case id.GroupKind == bindingKind && !equality.Semantic.DeepEqual(live.Object["roleRef"], object.Object["roleRef"]):
		// The API server rejects a change of the roleRef.
		p.Applies = append(p.Applies, Apply{Declared: object, Replaced: live})
	default:
		p.Applies = append(p.Applies, Apply{Declared: object, Live: live})
	}
}

// wasName reports whether a name is an earlier one of the tree: that of a policyspace without a parent that was created
// for it.
func (s State) wasName(tree string) bool {
	root := s.Live[ID{GroupKind: spaceKind, Name: tree}]
	return root != nil && s.Created[root.GetUID()] && parentIn(root) == ""
}

// isOfNstpl reports whether an object is of a kind of nstpl, so that a person or another tool has made it for other
// namespaces than those of a tree.
func isOfNstpl(id ID) bool { return id.GroupKind == templateKind || id.GroupKind == spaceKind }

// consents reports whether a namespace that existed before may become a part of a tree. A label says nothing, because
// every user who may update the namespace can set it. The two annotations are guarded.
func consents(ns *unstructured.Unstructured) bool {
	annotations := ns.GetAnnotations()
	return annotations[v1alpha1.AdoptAnnotation] == "true" || annotations[v1alpha1.InTreeAnnotation] == "true"
}
