package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Layer is a revision of a template, and the template with that revision's spec.
type Layer struct {
	v1alpha1.TemplateRevision
	Template *v1alpha1.NamespaceTemplate
	waves    []labels.Selector
}

// Layers are the revisions of a template that namespaces have, the newest first.
type Layers []Layer

// Single returns the layers of a template whose current spec is in force in every namespace.
func Single(template *v1alpha1.NamespaceTemplate) Layers {
	return Layers{{
		TemplateRevision: v1alpha1.TemplateRevision{
			Generation: template.Generation, State: v1alpha1.RolloutComplete,
		},
		Template: template,
	}}
}

// ReasonNotStored is the reason of the condition Ready of a template whose last change has no revision, because that
// cannot be stored. The status is that of the change before.
const ReasonNotStored = "RevisionNotStored"

// NotStored returns the message of the condition that the revision of a template's spec cannot be stored, or "" if the
// template has no such condition of its generation.
func NotStored(template *v1alpha1.NamespaceTemplate) string {
	ready := apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != ReasonNotStored || ready.ObservedGeneration != template.Generation {
		return ""
	}
	return ready.Message
}

// New returns the layers of a template for revisions from its status. specs are the specs of the revisions by name.
// Revisions without a spec are left out. If all are, the current spec is in force in every namespace.
func New(
	template *v1alpha1.NamespaceTemplate, revisions []v1alpha1.TemplateRevision,
	specs map[string]*v1alpha1.NamespaceTemplateSpec,
) Layers {
	var layers Layers
	for _, revision := range revisions {
		spec := specs[revision.Name]
		if spec == nil {
			continue
		}
		layered := template
		if revision.Generation != template.Generation {
			// The metadata is that of the stored template, which says whether the template is disabled.
			withSpec := *template
			withSpec.Spec, withSpec.Generation = *spec, revision.Generation
			layered = &withSpec
		}
		layers = append(layers,
			Layer{TemplateRevision: revision, Template: layered, waves: selectors(revision.Waves)})
	}
	if len(layers) == 0 {
		return Single(template)
	}
	return layers
}

func selectors(waves []v1alpha1.Wave) []labels.Selector {
	all := make([]labels.Selector, 0, len(waves))
	for _, wave := range waves {
		selector, err := metav1.LabelSelectorAsSelector(wave.Selector)
		if err != nil {
			selector = labels.Nothing() // its namespaces are in the last wave
		}
		all = append(all, selector)
	}
	return all
}

// For returns the layer that a namespace has, or nil if the template has not reached the namespace. It does not
// consider whether the layer selects the namespace.
func (l Layers) For(ns *corev1.Namespace) *Layer {
	for i := range l {
		if l[i].Reached(ns) {
			return &l[i]
		}
	}
	if len(l) > 0 && !ns.CreationTimestamp.Before(&l[0].Template.CreationTimestamp) {
		return &l[0]
	}
	return nil
}

// Reached reports whether the revision has reached a namespace.
func (l *Layer) Reached(ns *corev1.Namespace) bool {
	if l.State == v1alpha1.RolloutComplete {
		return true
	}
	created := ns.CreationTimestamp
	// Both times are in whole seconds. A namespace of the same second as the start may be older.
	if l.StartTime.Before(&created) {
		return l.StopTime == nil || created.Before(l.StopTime)
	}
	wave := l.WaveOf(ns)
	return wave < int(l.Wave) || wave == int(l.Wave) && l.PositionOf(ns.UID) < l.Reach
}

// WaveOf returns the index of the wave that a namespace belongs to. It is the number of waves if none selects it.
func (l *Layer) WaveOf(ns *corev1.Namespace) int {
	for i, selector := range l.waves {
		if selector.Matches(labels.Set(ns.Labels)) {
			return i
		}
	}
	return len(l.waves)
}

// everyPosition is greater than every position.
const everyPosition = 1 << 32

// PositionOf returns the position of a namespace within its wave. It differs between revisions, so that it is not
// always the same namespaces that a change reaches first.
func (l *Layer) PositionOf(namespace types.UID) int64 {
	sum := sha256.Sum256([]byte(l.Name + "/" + string(namespace)))
	return int64(binary.BigEndian.Uint32(sum[:4]))
}

// maxLayers is the most revisions that namespaces have at a time, as the schema of the status allows.
const maxLayers = 8

// Begin returns the revisions of a template after a revision was added. same are the names of the revisions with the
// same spec. If the complete revision is among them, the added one is complete, too.
func Begin(
	revisions []v1alpha1.TemplateRevision, added v1alpha1.TemplateRevision, same []string, now time.Time,
) []v1alpha1.TemplateRevision {
	start := metav1.NewTime(now.Truncate(time.Second))
	added.State, added.StartTime = v1alpha1.RolloutProgressing, start
	if i := slices.IndexFunc(revisions, IsComplete); i >= 0 && slices.Contains(same, revisions[i].Name) {
		return []v1alpha1.TemplateRevision{completed(added)}
	}
	all := []v1alpha1.TemplateRevision{added}
	for _, revision := range revisions {
		if !IsComplete(revision) && revision.State != v1alpha1.RolloutSuperseded {
			revision.State, revision.WaveTime = v1alpha1.RolloutSuperseded, nil
			if revision.StopTime == nil {
				revision.StopTime = new(metav1.NewTime(start.Add(time.Second)))
			}
		}
		all = append(all, revision)
	}
	if len(all) > maxLayers {
		all = shortened(all)
	}
	return all
}

// shortened returns one revision less, so that no namespace returns to an older revision if that can be avoided: a user
// could undo a change by many small ones. The first of revisions is the newest, which has just begun.
func shortened(revisions []v1alpha1.TemplateRevision) []v1alpha1.TemplateRevision {
	superseded := revisions[1:]
	if last := len(superseded) - 1; IsComplete(superseded[last]) {
		superseded = superseded[:last]
	}
	// Between a stop and the next revision, namespaces were created that have neither.
	for _, mayHaveGap := range []bool{false, true} {
		for i := len(superseded) - 2; i >= 0; i-- {
			newer, older := &superseded[i], superseded[i+1]
			if hasGap := older.StopTime.Before(&newer.StartTime); (mayHaveGap || !hasGap) && absorb(newer, older) {
				return slices.Delete(revisions, i+2, i+3)
			}
		}
	}
	// The oldest revision that is not complete is given up: its namespaces have the next older one.
	return slices.Delete(revisions, len(superseded), len(superseded)+1)
}

// absorb makes a superseded revision stand for the one before it, too, and reports whether it can: if both are the
// same, or if only namespaces have the older one that were created meanwhile.
func absorb(newer *v1alpha1.TemplateRevision, older v1alpha1.TemplateRevision) bool {
	isSame := newer.Name == older.Name && equality.Semantic.DeepEqual(newer.Waves, older.Waves)
	if !isSame && (older.Wave > 0 || older.Reach > 0) {
		return false
	}
	if isSame && (older.Wave > newer.Wave || older.Wave == newer.Wave && older.Reach > newer.Reach) {
		newer.Wave, newer.Reach = older.Wave, older.Reach
	}
	newer.StartTime = older.StartTime
	return true
}

// IsComplete reports whether a revision has reached every namespace.
func IsComplete(revision v1alpha1.TemplateRevision) bool {
	return revision.State == v1alpha1.RolloutComplete
}

// completed returns a revision that has reached every namespace. What says how far it came is dropped.
func completed(revision v1alpha1.TemplateRevision) v1alpha1.TemplateRevision {
	return v1alpha1.TemplateRevision{
		Name: revision.Name, Revision: revision.Revision, Generation: revision.Generation,
		State: v1alpha1.RolloutComplete, StartTime: revision.StartTime, RestartedAt: revision.RestartedAt,
	}
}
