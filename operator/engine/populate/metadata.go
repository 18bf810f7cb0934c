package populate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// DeclaredValue is the value of a label or an annotation of the namespace, as a template declares it.
type DeclaredValue struct {
	render.MetadataKey
	Value    string
	Template *v1alpha1.NamespaceTemplate
}

// ValueChange is what a plan does with a label or an annotation of the namespace, and why.
type ValueChange struct {
	render.MetadataKey
	// Action is Create, Configure, Unchanged, Prune or LeaveAlone. Prune removes the value and its record, or only the
	// record if another client has changed or removed the value.
	Action Action
	// Template is the name of the template that declares the value, or that declared it before.
	Template string
	// Declared is the declaration; nil if there is none.
	Declared *DeclaredValue
	Reason   string
	// Drifted says that another client set or removed the value.
	Drifted bool
	// Overwrites says that driftPolicy Report left what another client did, until the declaration changed.
	Overwrites bool
	// Postponed says that the correction waits, because another client sets the value again and again.
	Postponed bool
	// Selects says that a template selects by the label, so no template may set it.
	Selects bool
	// hasDeclaredValue says that the namespace has the declared value.
	hasDeclaredValue bool
}

func (c ValueChange) writes() bool {
	return c.Action == Create || c.Action == Configure || c.Action == Prune
}

// corrects reports whether the change undoes what another client did.
func (c ValueChange) corrects() bool { return c.Drifted && c.writes() }

// String returns the reason with the name of the label or annotation.
func (c ValueChange) String() string { return c.MetadataKey.String() + " " + c.Reason }

// MetadataChange is what a plan does with the labels and annotations of the namespace. One write carries it out.
type MetadataChange struct {
	// Values are the changes of single labels and annotations, in the order of their keys.
	Values []ValueChange
	// namespace is the namespace as it was observed.
	namespace *corev1.Namespace
}

// namespaceID returns the ID of a namespace, as findings about its labels and annotations have it.
func namespaceID(ns *corev1.Namespace) ObjectID {
	return ObjectID{GroupKind: render.NamespaceKind.GroupKind(), Name: ns.Name}
}

// addMetadata adds the labels and annotations that a template declares. If several templates declare one, the last one
// wins.
func (d *Declared) addMetadata(template *v1alpha1.NamespaceTemplate, values map[render.MetadataKey]string) {
	for _, key := range slices.SortedFunc(maps.Keys(values), render.MetadataKey.Compare) {
		declared := DeclaredValue{key, values[key], template}
		i, isDeclared := slices.BinarySearchFunc(d.Metadata, key, func(v DeclaredValue, k render.MetadataKey) int {
			return v.MetadataKey.Compare(k)
		})
		if !isDeclared {
			d.Metadata = slices.Insert(d.Metadata, i, declared)
			continue
		}
		d.Overridden = append(d.Overridden, Overridden{
			Object: namespaceID(d.Namespace), Field: key.String(),
			Template: d.Metadata[i].Template.Name, By: template.Name,
		})
		d.Metadata[i] = declared
	}
}

// planMetadata plans the labels and annotations of the namespace. It reports false if there is nothing to plan: no
// template declares any, and none is recorded.
func planMetadata(declared Declared, index *match.Index) (Change, bool) {
	ns := declared.Namespace
	record := RecordedMetadata(ns.Annotations)
	if len(declared.Metadata) == 0 && len(record) == 0 {
		return Change{}, false
	}
	planned := &MetadataChange{namespace: ns}
	isDeclared := map[render.MetadataKey]bool{}
	for i := range declared.Metadata {
		value := &declared.Metadata[i]
		isDeclared[value.MetadataKey] = true
		planned.Values = append(planned.Values, planValue(value, ns, record, index))
	}
	for _, key := range slices.SortedFunc(maps.Keys(record), render.MetadataKey.Compare) {
		if isDeclared[key] || key == depthsKey {
			continue
		}
		change := undeclaredValue(declared, index, key, record[key])
		if _, exists := valueIn(ns, key); exists || change.Action == Prune {
			planned.Values = append(planned.Values, change)
		}
	}
	slices.SortStableFunc(planned.Values, func(a, b ValueChange) int { return a.MetadataKey.Compare(b.MetadataKey) })
	if len(planned.Values) == 0 {
		return Change{}, false
	}
	return planned.change(), true
}

func planValue(
	declared *DeclaredValue, ns *corev1.Namespace, record MetadataRecord, index *match.Index,
) ValueChange {
	change := compareValue(declared, ns, record)
	if selecting := index.SelectedBy(change.Key); selecting != "" && change.Field == render.Labels {
		change.Action, change.Selects, change.Drifted, change.Overwrites = LeaveAlone, true, false, false
		change.Reason = fmt.Sprintf("is not managed, because template %s selects by it: "+
			"remove it from namespaceMetadata, or select by another label", selecting)
	}
	return change
}

// compareValue plans a value by what the namespace has and by the record.
func compareValue(declared *DeclaredValue, ns *corev1.Namespace, record MetadataRecord) ValueChange {
	change := ValueChange{
		MetadataKey: declared.MetadataKey, Template: declared.Template.Name, Declared: declared, Action: Configure,
	}
	value, exists := valueIn(ns, change.MetadataKey)
	recorded, isRecorded := record[change.MetadataKey]
	isDeclared, isOurs := exists && value == declared.Value, isRecorded && recorded.isValueOf(ns, change.MetadataKey)
	change.hasDeclaredValue = isDeclared
	switch {
	case isDeclared && isOurs && recorded.isOf(declared.Template):
		change.Action, change.Reason = Unchanged, "is as declared"
	case isDeclared && isOurs:
		change.Reason = "is not recorded for the template yet"
	case isDeclared:
		change.Reason = "exists but is not managed by nstpl yet"
	case isOurs:
		change.Reason = reasonDeclarationChanged
	case exists:
		change = driftedValue(change, fmt.Sprintf("was set to %q by another client", value))
	case isRecorded:
		change = driftedValue(change, "was removed by another client")
	default:
		change.Action, change.Reason = Create, "does not exist"
	}
	if change.Drifted && change.Action == LeaveAlone && isRecorded && !recorded.IsIn(declared.Value) {
		change.Action, change.Drifted, change.Overwrites = Configure, false, true // like an object: see asDeclaredNow
		change.Reason = overwritingReason(strings.TrimSuffix(change.Reason, driftIsReported))
	}
	return change
}

// driftedValue plans a value that differs from its declaration.
func driftedValue(change ValueChange, reason string) ValueChange {
	change.Drifted = true
	change.Action, change.Reason = driftAction(change.Declared.Template, reason)
	return change
}

// undeclaredValue plans a recorded value that no template declares. It is removed under the conditions under which an
// object is pruned. If another client has changed it, its record is removed under these conditions, or if the template
// is gone: a late write of a former leader, which corrects the value, is refused only if the record has changed.
func undeclaredValue(
	declared Declared, index *match.Index, key render.MetadataKey, recorded RecordedValue,
) ValueChange {
	change := ValueChange{MetadataKey: key, Action: LeaveAlone, Template: recorded.Template}
	template := index.Get(recorded.Template)
	isGone := template == nil || template.UID != recorded.UID
	isOurs := recorded.isValueOf(declared.Namespace, key)
	hasName := func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == recorded.Template }
	switch {
	case isGone && !isOurs:
		change.Action = Prune
	case recorded.Existed:
		change.Reason = "existed before nstpl managed it"
	case isGone:
		change.Reason = fmt.Sprintf("remains, because template %s does not exist", recorded.Template)
	case index.IsOutside(declared.Namespace, recorded.Template):
		change.Reason = "remains: " + unmatched(template, declared)
	case declared.exemptsMetadata(recorded.Template):
		change.Reason = "remains, because the namespace is exempt from it"
	case slices.ContainsFunc(declared.Broken, func(b Broken) bool { return hasName(b.Template) }):
		change.Reason = fmt.Sprintf("remains, because template %s can't be rendered", recorded.Template)
	case declared.omits(recorded.Template, namespaceID(declared.Namespace)):
		change.Reason = fmt.Sprintf("remains, because template %s may declare it once the namespace's creator is known",
			recorded.Template)
	case slices.ContainsFunc(declared.Templates, hasName):
		change.Action = Prune
		change.Reason = fmt.Sprintf("is removed: template %s no longer declares it", recorded.Template)
	case template.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
		change.Action, change.Reason = Prune, "is removed: "+unmatched(template, declared)
	default:
		change.Reason = "remains: " + unmatched(template, declared) + "; deletionPolicy is Orphan"
	}
	switch {
	case !isOurs && change.Action == Prune:
		change.Reason = "was changed or removed by another client, so only its record is removed"
	case !isOurs && !recorded.Existed:
		change.Reason = "was set by another client"
	}
	return change
}

// change returns the change of the namespace that consists of the changes of its labels and annotations.
func (m *MetadataChange) change() Change {
	ns := m.namespace
	change := Change{
		Action: LeaveAlone, Kind: render.NamespaceKind, Name: ns.Name, Template: m.templates(), Metadata: m,
		Observed: &metav1.PartialObjectMetadata{ObjectMeta: *ns.ObjectMeta.DeepCopy()},
		Reason:   m.reason(),
	}
	change.Observed.SetGroupVersionKind(render.NamespaceKind)
	if ns.UID == "" {
		change.Observed = nil
	}
	for _, value := range m.Values {
		change.Drifted, change.Postponed = change.Drifted || value.Drifted, change.Postponed || value.Postponed
		switch {
		case value.writes():
			change.Action = Configure
		case value.Action == Unchanged && change.Action == LeaveAlone:
			change.Action = Unchanged
		}
	}
	if change.Action == Configure && ns.UID == "" {
		change.Action = Create
	}
	change.Declared = m.declared()
	return change
}

// templates returns the names of the templates whose values are changed or left alone, separated by commas.
func (m *MetadataChange) templates() string {
	var names []string
	for _, value := range m.Values {
		if !slices.Contains(names, value.Template) {
			names = append(names, value.Template)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// reason returns why the labels and annotations are written, or else why they are not.
func (m *MetadataChange) reason() string {
	var parts []string
	for _, value := range m.Values {
		if value.Action != Unchanged {
			parts = append(parts, value.String())
		}
	}
	if len(parts) == 0 {
		return "its labels and annotations are as declared"
	}
	const most = 3
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// declared returns the declared labels and annotations as an object, or nil if there are none.
func (m *MetadataChange) declared() *Object {
	object := newNamespace(m.namespace.Name)
	var template *v1alpha1.NamespaceTemplate
	for _, value := range m.Values {
		if value.Declared != nil && !value.Selects {
			setValue(object, value.MetadataKey, value.Declared.Value)
			template = value.Declared.Template
		}
	}
	hash, err := render.Hash(object)
	if template == nil || err != nil {
		return nil
	}
	return &Object{Unstructured: object, Template: template, Hash: hash}
}

// keeping returns the change without the removal of some values and their records.
func (m *MetadataChange) keeping(keep func(render.MetadataKey) bool, reason string) Change {
	var values []ValueChange
	for _, value := range m.Values {
		_, exists := valueIn(m.namespace, value.MetadataKey)
		isKept := value.Action == Prune && keep(value.MetadataKey)
		if isKept {
			value.Action, value.Reason = LeaveAlone, reason
		}
		if exists || !isKept {
			values = append(values, value)
		}
	}
	return m.of(values)
}

// of returns the change of the namespace that consists of some changes of its labels and annotations.
func (m *MetadataChange) of(values []ValueChange) Change {
	return (&MetadataChange{Values: values, namespace: m.namespace}).change()
}

// After returns the labels and annotations of the namespace if all declared values were set.
func (m *MetadataChange) After() (labels, annotations map[string]string) {
	values := map[string]map[string]string{
		render.Labels: maps.Clone(m.namespace.Labels), render.Annotations: maps.Clone(m.namespace.Annotations),
	}
	record := RecordedMetadata(m.namespace.Annotations)
	for _, change := range m.Values {
		switch {
		case change.Action == Prune && record[change.MetadataKey].isValueOf(m.namespace, change.MetadataKey):
			delete(values[change.Field], change.Key)
		case change.Declared != nil && !change.Selects:
			if values[change.Field] == nil {
				values[change.Field] = map[string]string{}
			}
			values[change.Field][change.Key] = change.Declared.Value
		}
	}
	return values[render.Labels], values[render.Annotations]
}

// patch returns the labels and annotations to write, as the metadata of a merge patch: those to set, null for those to
// remove, and the new record.
func (m *MetadataChange) patch() map[string]map[string]any {
	patch := map[string]map[string]any{render.Labels: {}, render.Annotations: {}}
	before, after := RecordedMetadata(m.namespace.Annotations), MetadataRecord{}
	for key, recorded := range before {
		if _, exists := valueIn(m.namespace, key); exists || key == depthsKey {
			after[key] = recorded
		}
	}
	for _, change := range m.Values {
		key := change.MetadataKey
		recorded, isRecorded := before[key]
		_, exists := valueIn(m.namespace, key)
		switch {
		case change.Action == Prune:
			if recorded.isValueOf(m.namespace, key) {
				patch[key.Field][key.Key] = nil
			}
			delete(after, key)
		case change.Action == Create || change.Action == Configure:
			patch[key.Field][key.Key] = change.Declared.Value
			set := NewRecordedValue(change.Template, change.Declared.Template.UID, change.Declared.Value)
			set.Existed = isRecorded && recorded.Existed || !isRecorded && exists
			after[key] = set
		case isRecorded && change.Declared != nil:
			after[key] = recorded // also of a value that another client removed
		}
	}
	patch[recordKey.Field][recordKey.Key] = nil
	if len(after) > 0 {
		patch[recordKey.Field][recordKey.Key] = after.String()
	}
	return patch
}

// mergePatch returns a merge patch of the namespace with a resourceVersion.
func (m *MetadataChange) mergePatch(version string) map[string]any {
	metadata := map[string]any{"uid": m.namespace.UID, "resourceVersion": version}
	for field, values := range m.patch() {
		metadata[field] = values
	}
	return map[string]any{"metadata": metadata}
}

// in returns the change for a later state of the namespace, in which users have changed values, but not the record.
func (m *MetadataChange) in(current *metav1.PartialObjectMetadata) *MetadataChange {
	ns, record := *m.namespace, RecordedMetadata(current.Annotations)
	ns.ObjectMeta = current.ObjectMeta
	changed := &MetadataChange{Values: slices.Clone(m.Values), namespace: &ns}
	for i := range changed.Values {
		value := &changed.Values[i]
		if value.Declared != nil && !value.Selects && !value.Postponed {
			*value = compareValue(value.Declared, &ns, record)
		}
	}
	return changed
}

// testedPatch returns a patch that the API server applies whatever users do to the values meanwhile. Only what it
// removes must still have the recorded value, and what it adds must not exist yet, since that is recorded. A value that
// no template set before must not stay if its template is gone by now. A new leader's record does not show that, so the
// leader must not have reported either.
func (m *MetadataChange) testedPatch() patches.Tested {
	tested, takes := UnlessRecorded(m.namespace), false
	record := RecordedMetadata(m.namespace.Annotations)
	before := map[string]map[string]string{
		render.Labels: m.namespace.Labels, render.Annotations: m.namespace.Annotations,
	}
	for field, values := range m.patch() {
		path, after := "/metadata/"+field, map[string]string{}
		maps.Copy(after, before[field])
		for key, value := range values {
			_, exists := before[field][key]
			_, isRecorded := record[render.MetadataKey{Field: field, Key: key}]
			text, isSet := value.(string)
			if after[key] = text; !isSet {
				delete(after, key)
			}
			if !isSet || !exists && !isRecorded {
				tested = tested.TestIn(path, before[field], key)
			}
			takes = takes || isSet && !isRecorded && key != recordKey.Key
		}
		tested = tested.Change(path, before[field], after)
	}
	if takes {
		return append(UnlessReported(m.namespace), tested...)
	}
	return tested
}

func newNamespace(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
	object.SetGroupVersionKind(render.NamespaceKind)
	return object
}

// setValue sets a label or an annotation of an object that newNamespace returned.
func setValue(object *unstructured.Unstructured, key render.MetadataKey, value string) {
	metadata := object.Object["metadata"].(map[string]any)
	values, ok := metadata[key.Field].(map[string]any)
	if !ok {
		values = map[string]any{}
		metadata[key.Field] = values
	}
	values[key.Key] = value
}

// LacksSelectedLabel reports whether the namespace lacks a declared label because a template selects by it.
func (p Plan) LacksSelectedLabel() bool {
	lacks := func(value ValueChange) bool { return value.Selects && !value.hasDeclaredValue }
	return slices.ContainsFunc(p.Changes, func(c Change) bool {
		return c.Metadata != nil && slices.ContainsFunc(c.Metadata.Values, lacks)
	})
}

// valueIn returns the value of a label or an annotation of a namespace.
func valueIn(ns *corev1.Namespace, key render.MetadataKey) (value string, exists bool) {
	values := ns.Annotations
	if key.Field == render.Labels {
		values = ns.Labels
	}
	value, exists = values[key.Key]
	return value, exists
}

// metadataFindings returns the findings about labels and annotations of the namespace. The failure is that of the
// write, or nil. isWritten says whether there was one.
func metadataFindings(change Change, failure *Failure, isWritten bool) []Finding {
	var findings []Finding
	failed := map[string]bool{}
	for _, value := range change.Metadata.Values {
		finding := Finding{Object: change.ID(), Template: value.Template, Severity: Warning, Message: value.String()}
		switch {
		case value.Selects:
			finding.Reason = FindingSelects
			if !value.hasDeclaredValue {
				finding.Severity = severity(value.Declared.Template)
			}
		case value.writes() && failure != nil && !failed[value.Template]:
			failed[value.Template] = true
			finding.Reason, finding.Message, finding.MayPass = FindingFailed, failure.Error(), failure.MayPass()
			if value.Declared != nil {
				finding.Severity = severity(value.Declared.Template)
			}
		case value.writes() && failure != nil:
			continue
		case value.Postponed: // see Fought
			continue
		case value.Drifted && value.Action == LeaveAlone:
			finding.Reason, finding.Message = FindingDrifted, messageDrifted+value.String()
		case value.Drifted && isWritten:
			finding.Severity, finding.Reason = Info, FindingDriftCorrected
			finding.Message = messageCorrected + value.String()
		case value.Overwrites && isWritten:
			finding.Severity, finding.Reason = Info, FindingOverwritten
		default:
			continue
		}
		findings = append(findings, finding)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return findings
}

// MayPruneMetadata reports whether labels or annotations of a namespace remain to be removed once a template is gone.
func MayPruneMetadata(ns *corev1.Namespace, template string, uid types.UID) bool {
	for key, recorded := range RecordedMetadata(ns.Annotations) {
		if recorded.Template == template && recorded.UID == uid && !recorded.Existed && recorded.isValueOf(ns, key) {
			return true
		}
	}
	return false
}
