package populate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// applied returns the metadata of an object after nstpl applied it and another client changed the given paths.
func applied(t testing.TB, object Object, changed ...fieldpath.Path) *metav1.PartialObjectMetadata {
	t.Helper()
	body, err := Change{Declared: &object}.Body(nil)
	require.NoError(t, err)
	written := &unstructured.Unstructured{}
	require.NoError(t, written.UnmarshalJSON(body))
	value, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(written)
	require.NoError(t, err)
	owned, err := value.ToFieldSet()
	require.NoError(t, err)
	entry := entryOfSet(t, owned.Difference(fieldpath.NewSet(changed...)))
	observed := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: written.GetName(), Namespace: written.GetNamespace(), UID: "uid",
		Labels: written.GetLabels(), Annotations: written.GetAnnotations(),
		ManagedFields: []metav1.ManagedFieldsEntry{*entry},
	}}
	if len(changed) > 0 {
		observed.ManagedFields = append(observed.ManagedFields,
			metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate},
			metav1.ManagedFieldsEntry{
				Manager: "controller", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status",
			})
	}
	observed.SetGroupVersionKind(written.GroupVersionKind())
	delete(observed.Annotations, v1alpha1.UnownedAnnotation) // this typed set owns the fields that the API server drops
	return observed
}

// foreign returns the metadata of a ConfigMap that a user created with a template's label.
func foreign(name, template string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.TemplateNameLabel: template},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + v1alpha1.TemplateNameLabel + `":{}}}}`),
		}},
	}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	return object
}

func with(
	object *metav1.PartialObjectMetadata, change func(*metav1.PartialObjectMetadata),
) *metav1.PartialObjectMetadata {
	change(object)
	return object
}

func madeImmutable(o *metav1.PartialObjectMetadata) {
	o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kubectl-patch", Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:immutable":{}},"f:immutable":{}}`),
	})
}

func TestPlanOfADeclaredObject(t *testing.T) {
	type observe func(changed ...fieldpath.Path) *metav1.PartialObjectMetadata
	color, hash := fieldpath.MakePathOrDie("data", "color"),
		fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.HashAnnotation)
	label := fieldpath.MakePathOrDie("metadata", "labels", v1alpha1.TemplateNameLabel)
	id := ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
	tests := []struct {
		name     string
		observed func(declared observe) Observed
		recorded bool
		// action and reason are for driftPolicy Correct; under Report drift is left alone.
		action  Action
		drifted bool
		reason  string
	}{
		{"missing", func(observe) Observed { return Observed{} }, false,
			Create, false, "does not exist"},
		{"created by a user", func(observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{foreign("settings", "a")}}
		}, false, Create, false, "exists but is not managed by nstpl yet"},
		{"as declared", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{declared()}}
		}, false, Unchanged, false, "is as declared"},
		{"as declared, with the label of another template", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(label),
				func(o *metav1.PartialObjectMetadata) {
					o.Labels[v1alpha1.TemplateNameLabel] = "b"
				})}}
		}, false, Configure, true, "metadata.labels.policy/namespace-template-name changed by kubectl-edit"},
		{"with another declaration", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(),
				func(o *metav1.PartialObjectMetadata) {
					o.Annotations[v1alpha1.HashAnnotation] = "old"
				})}}
		}, false, Configure, false, "its declaration changed"},
		{"with another declaration, and changed by another client", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(color),
				func(o *metav1.PartialObjectMetadata) {
					o.Annotations[v1alpha1.HashAnnotation] = "old"
				})}}
		}, false, Configure, false, "its declaration changed"},
		{"made immutable by another client", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(), madeImmutable)}}
		}, false, LeaveAlone, true, "kubectl-patch made it immutable, so it keeps its content until it is deleted"},
		{"a field changed by another client", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{declared(color)}}
		}, false, Configure, true, "data.color changed by kubectl-edit"},
		{"the hash changed by another client", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(hash),
				func(o *metav1.PartialObjectMetadata) {
					o.Annotations[v1alpha1.HashAnnotation] = "forged"
				})}}
		}, false, Configure, true, "its annotation policy.nstpl.dev/applied-hash was changed"},
		{"managedFields were reset", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(),
				func(o *metav1.PartialObjectMetadata) { o.ManagedFields = nil })}}
		}, false, Configure, true, "its managedFields were reset"},
		{"managedFields written under the name of nstpl", func(declared observe) Observed {
			return Observed{
				Objects: []*metav1.PartialObjectMetadata{declared()}, Tampered: map[types.UID]bool{"uid": true},
			}
		}, false, Configure, true, "its managedFields were written by another client under the name of nstpl"},
		{"managedFields can't be read", func(declared observe) Observed {
			return Observed{Objects: []*metav1.PartialObjectMetadata{with(declared(),
				func(o *metav1.PartialObjectMetadata) {
					o.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1("{")
				})}}
		}, false, Configure, true, "its managedFields can't be read: unexpected end of JSON input"},
		{"deleted by another client, before a restart of the operator", func(observe) Observed {
			return Observed{}
		}, true,
			Create, true, "another client deleted it or removed its label"},
		{"deleted by another client while the operator watched", func(declared observe) Observed {
			return Observed{Lost: map[ObjectID]*metav1.PartialObjectMetadata{id: declared()}}
		}, false, Create, true, "another client deleted it or removed its label"},
	}
	for _, test := range tests {
		for _, policy := range []v1alpha1.DriftPolicy{"", v1alpha1.DriftCorrect, v1alpha1.DriftReport} {
			t.Run(test.name+" "+string(policy), func(t *testing.T) {
				template := templateOf(t, "a", settings)
				template.Spec.DriftPolicy = policy
				declared := declare(teamA(), template)
				if test.drifted && policy == v1alpha1.DriftReport {
					declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = existing{
						reported: map[string]string{digestOf(id): shortHash(&declared.Objects[0])},
					}.String()
				} else if test.recorded {
					return // only objects of templates with driftPolicy Report are recorded
				}
				observed := test.observed(func(changed ...fieldpath.Path) *metav1.PartialObjectMetadata {
					return applied(t, declared.Objects[0], changed...)
				})
				changes := NewPlan(declared, match.NewIndex(template), observed).Changes
				require.Len(t, changes, 1)
				action, reason := test.action, test.reason
				if policy == v1alpha1.DriftReport && test.drifted {
					action, reason = LeaveAlone, reason+"; driftPolicy is Report"
				}
				require.Equal(t, action, changes[0].Action)
				require.Equal(t, reason, changes[0].Reason)
				require.Equal(t, test.drifted, changes[0].Drifted)
				require.Equal(t, id, changes[0].ID())
				require.Equal(t, "v1", changes[0].Kind.Version)
				require.Equal(t, "a", changes[0].Template)
				require.Equal(t, &declared.Objects[0], changes[0].Declared)
				if len(observed.Objects) > 0 {
					require.Same(t, observed.Objects[0], changes[0].Observed)
				}
			})
		}
	}
}

func TestDriftReasonNamesTheFirstLostFieldsAndTheirManagers(t *testing.T) {
	template := templateOf(t, "a",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: d, e: e}}")
	declared := declare(teamA(), template)
	observed := applied(t, declared.Objects[0], fieldpath.MakePathOrDie("data", "a"),
		fieldpath.MakePathOrDie("data", "b"),
		fieldpath.MakePathOrDie("data", "c"), fieldpath.MakePathOrDie("data", "d"),
		fieldpath.MakePathOrDie("data", "e"))
	observed.ManagedFields = append(observed.ManagedFields, metav1.ManagedFieldsEntry{Manager: "helm"},
		metav1.ManagedFieldsEntry{Manager: "helm"})
	plan := NewPlan(declared, match.NewIndex(template), Observed{Objects: []*metav1.PartialObjectMetadata{observed}})
	require.Equal(t, "data.a, data.b, data.c and 2 more changed by kubectl-edit or helm", plan.Changes[0].Reason)

	observed.ManagedFields = observed.ManagedFields[:1]
	plan = NewPlan(declared, match.NewIndex(template), Observed{Objects: []*metav1.PartialObjectMetadata{observed}})
	require.Equal(t, "data.a, data.b, data.c and 2 more changed", plan.Changes[0].Reason)
}

func TestPlanOfAnUndeclaredObject(t *testing.T) {
	now := metav1.Now()
	kinds := []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	matching := func(template *v1alpha1.NamespaceTemplate) { template.Status.Kinds = kinds }
	selectsOthers := func(template *v1alpha1.NamespaceTemplate) {
		template.Status.Kinds = kinds
		template.Spec.Namespaces.LabelSelector.MatchLabels = map[string]string{"tier": "test"}
	}
	tests := []struct {
		name string
		// template changes template a, which declared the object before and declares another one now.
		template func(*v1alpha1.NamespaceTemplate)
		observed func(*metav1.PartialObjectMetadata)
		action   Action
		reason   string
	}{
		{"no longer declared", matching, nil, Prune, "template a no longer declares it"},
		{"no longer declared, and changed by another client", matching, func(o *metav1.PartialObjectMetadata) {
			o.Annotations = nil
			o.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(
				`{"f:metadata":{"f:labels":{"f:policy/namespace-template-name":{}}}}`)
		}, Prune, "template a no longer declares it"},
		{"created by a user with the label", matching, func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields = foreign("", "").ManagedFields
		},
			LeaveAlone, "has a template's label, but nstpl did not create it"},
		{"updated, not applied, under the name of nstpl", matching, func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[0].Operation = metav1.ManagedFieldsOperationUpdate
		}, LeaveAlone, "has a template's label, but nstpl did not create it"},
		{"adopted", matching, func(o *metav1.PartialObjectMetadata) {
			o.Annotations[v1alpha1.AdoptedAnnotation] = "true"
		},
			LeaveAlone, "existed before nstpl managed it"},
		{"being deleted", matching, func(o *metav1.PartialObjectMetadata) {
			o.DeletionTimestamp = &now
		}, LeaveAlone, "is being deleted: template a no longer declares it"},
		{"of a template that does not exist", matching, func(o *metav1.PartialObjectMetadata) {
			o.Labels[v1alpha1.TemplateNameLabel] = "z"
		},
			LeaveAlone, "template z does not exist"},
		{
			"of a kind that the template never applied", func(*v1alpha1.NamespaceTemplate) {}, nil, LeaveAlone,
			"template a never applied a ConfigMap",
		},
		{"of a template that is broken", func(template *v1alpha1.NamespaceTemplate) {
			matching(template)
			template.Spec.Templates[0].Raw = []byte("{}")
		}, nil, LeaveAlone, "template a can't be rendered"},
		{"of a template that no longer matches", selectsOthers, nil, LeaveAlone,
			`template a no longer matches: label tier is missing, not "test"; deletionPolicy is Orphan`},
		{"of a template with deletionPolicy Orphan", func(template *v1alpha1.NamespaceTemplate) {
			selectsOthers(template)
			template.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
		}, nil, LeaveAlone,
			`template a no longer matches: label tier is missing, not "test"; deletionPolicy is Orphan`},
		{"of a template with deletionPolicy Delete", func(template *v1alpha1.NamespaceTemplate) {
			selectsOthers(template)
			template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		}, nil, Prune, `template a no longer matches: label tier is missing, not "test"`},
		{"of a template that the namespace is opted out of", func(template *v1alpha1.NamespaceTemplate) {
			matching(template)
			template.Name, template.Spec.DeletionPolicy = "opted-out", v1alpha1.DeletionDelete
		}, func(o *metav1.PartialObjectMetadata) { o.Labels[v1alpha1.TemplateNameLabel] = "opted-out" }, LeaveAlone,
			"template opted-out no longer matches: the namespace is opted out of template opted-out (annotation " +
				v1alpha1.OptOutAnnotation + ")"},
		{"of a disabled template with deletionPolicy Delete", func(template *v1alpha1.NamespaceTemplate) {
			matching(template)
			template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
		}, nil, Prune,
			"template a no longer matches: the template is disabled (annotation policy/namespace-template-apply: disable)"},
		{"of a template that is being deleted, with deletionPolicy Delete", func(template *v1alpha1.NamespaceTemplate) {
			matching(template)
			template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			template.DeletionTimestamp = &now
		}, nil, Prune, "template a no longer matches: the template is being deleted"},
		{"created by a user, of a template with deletionPolicy Delete", func(template *v1alpha1.NamespaceTemplate) {
			selectsOthers(template)
			template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		}, func(o *metav1.PartialObjectMetadata) { o.ManagedFields = foreign("", "").ManagedFields }, LeaveAlone,
			"has a template's label, but nstpl did not create it"},
		{"managedFields were reset", matching, func(o *metav1.PartialObjectMetadata) { o.ManagedFields = nil },
			Prune, "template a no longer declares it"},
		{"adopted, and managedFields were reset", matching, func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields, o.Annotations[v1alpha1.AdoptedAnnotation] = nil, "true"
		}, LeaveAlone, "existed before nstpl managed it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0])
			if test.observed != nil {
				test.observed(old)
			}
			template := templateOf(t, "a", limits)
			test.template(template)
			index := match.NewIndex(template)
			ns := teamA()
			ns.Annotations[v1alpha1.OptOutAnnotation] = "opted-out"
			declared := declare(ns, index.Match(ns)...)
			plan := NewPlan(declared, index, Observed{Objects: []*metav1.PartialObjectMetadata{old}})
			require.Equal(t, Change{
				Action: test.action, Kind: old.GroupVersionKind(), Name: "settings",
				Template: old.Labels[v1alpha1.TemplateNameLabel],
				Reason:   test.reason, Observed: old,
			}, plan.Changes[len(plan.Changes)-1])
			require.Len(t, plan.Changes, len(declared.Objects)+1)
		})
	}
}

func TestPlanPrunesNoObjectsThatATemplateMayDeclareOnceTheCreatorIsKnown(t *testing.T) {
	template := templateOf(t, "a", creator)
	template.Status.Kinds = []v1alpha1.GroupKind{
		{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, {Kind: "ConfigMap"},
	}
	index := match.NewIndex(template)
	observed := Observed{Objects: []*metav1.PartialObjectMetadata{
		applied(t, declare(teamA(), template).Objects[0]),
		applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0]),
	}}
	anonymous := teamA()
	anonymous.Annotations = nil
	changes := NewPlan(declare(anonymous, template), index, observed).Changes
	require.Len(t, changes, 3)
	require.Equal(t, "it names the namespace's creator, who is not known", changes[0].Reason)
	require.Equal(t, LeaveAlone, changes[0].Action)
	require.Nil(t, changes[0].Declared)
	require.Equal(t, "template a may declare it once the namespace's creator is known", changes[1].Reason)
	require.Equal(t, LeaveAlone, changes[1].Action)
	require.Equal(t, Prune, changes[2].Action, "an object of another kind is pruned")
}

func TestPlanShowsOverriddenDeclarations(t *testing.T) {
	a, b := templateOf(t, "a", settings), templateOf(t, "b", settings)
	changes := NewPlan(declare(teamA(), a, b), match.NewIndex(a, b), Observed{}).Changes
	require.Len(t, changes, 2)
	require.Equal(t, Create, changes[0].Action)
	require.Equal(t, "b", changes[0].Template)
	require.Equal(t, LeaveAlone, changes[1].Action)
	require.Equal(t, "a", changes[1].Template)
	require.Equal(t, "is overridden by template b, which also declares it", changes[1].Reason)
	require.Equal(t, changes[0].ID(), changes[1].ID())
}

func TestPlanConfiguresAnObjectThatAnotherTemplateDeclaresNow(t *testing.T) {
	a, b := templateOf(t, "a", limits), templateOf(t, "b", settings)
	observed := applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0])
	changes := NewPlan(declare(teamA(), a, b), match.NewIndex(a, b),
		Observed{Objects: []*metav1.PartialObjectMetadata{observed}}).Changes
	require.Len(t, changes, 2, "the object is configured, not pruned")
	require.Equal(t, Configure, changes[1].Action)
	require.Equal(t, "its declaration changed", changes[1].Reason)
}

func TestPlanShowsKindsThatCannotBeRead(t *testing.T) {
	template := templateOf(t, "a", settings, limits)
	forbidden := errors.New("forbidden")
	plan := NewPlan(declare(teamA(), template), match.NewIndex(template),
		Observed{Unreadable: map[schema.GroupKind]error{{Kind: "ConfigMap"}: forbidden}})
	require.Equal(t, Unknown, plan.Changes[0].Action)
	require.Equal(t, "forbidden", plan.Changes[0].Reason)
	require.ErrorIs(t, plan.Changes[0].Err, forbidden)
	require.Equal(t, Create, plan.Changes[1].Action)
	require.Len(t, pending(plan), 1)
}

// Some objects of a kind may be known although others are not: nothing of it is deleted or reported as undeclared.
func TestPlanIgnoresTheKnownObjectsOfKindsThatCannotBeRead(t *testing.T) {
	template := templateOf(t, "a", settings)
	template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	other := declare(teamA(), templateOf(t, "a", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}"))
	former, undeclared := theirs(&other.Objects[0]), theirs(&other.Objects[0])
	former.Labels = map[string]string{v1alpha1.TemplateNameLabel: "a"}
	for name, observed := range map[string]Observed{
		"with a template's label":    {Objects: []*metav1.PartialObjectMetadata{former}},
		"without a template's label": {Others: []*metav1.PartialObjectMetadata{undeclared}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, NewPlan(declare(teamA(), template), match.NewIndex(template), observed).Changes, 2)
			observed.Unreadable = map[schema.GroupKind]error{{Kind: "ConfigMap"}: errors.New("forbidden")}
			plan := NewPlan(declare(teamA(), template), match.NewIndex(template), observed)
			require.Len(t, plan.Changes, 1)
			require.Equal(t, Unknown, plan.Changes[0].Action)
			require.Equal(t, "settings", plan.Changes[0].Name)
		})
	}
}

func TestPlanOfAppliedObjectsHasNoChanges(t *testing.T) {
	for _, object := range realObjects {
		template := templateOf(t, "a", object)
		declared := declare(teamA(), template)
		observed := Observed{Objects: []*metav1.PartialObjectMetadata{applied(t, declared.Objects[0])}}
		plan := NewPlan(declared, match.NewIndex(template), observed)
		require.Empty(t, pending(plan))
		require.Equal(t, "is as declared", plan.Changes[0].Reason)
	}
}

// pending returns the changes that need a write.
func pending(plan Plan) []Change {
	var changes []Change
	for _, change := range plan.Changes {
		if change.Action == Create || change.Action == Configure || change.Action == Prune {
			changes = append(changes, change)
		}
	}
	return changes
}

// An authoritative template deletes undeclared objects, also those that a user applied with the field manager nstpl and
// without a template's label.
func TestUndeclaredObjectsAppliedUnderTheNameOfNstplAreDeleted(t *testing.T) {
	template := templateOf(t, "a", limits)
	template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	theirs := with(applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0]),
		func(o *metav1.PartialObjectMetadata) { o.Labels = nil })
	plan := NewPlan(declare(teamA(), template), match.NewIndex(template),
		Observed{Others: []*metav1.PartialObjectMetadata{theirs}})
	require.Equal(t, Prune, plan.Changes[len(plan.Changes)-1].Action)
	require.Equal(t, "settings", plan.Changes[len(plan.Changes)-1].Name)
}

// If the second write of an apply is lost, the record on the object lists fields that are owned.
func TestTheRecordOfUnownedFieldsIsCorrected(t *testing.T) {
	template := templateOf(t, "a", settings)
	template.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), template)
	observed := applied(t, declared.Objects[0])
	observed.Annotations[v1alpha1.UnownedAnnotation] = "data.color"
	change := NewPlan(declared, match.NewIndex(template),
		Observed{Objects: []*metav1.PartialObjectMetadata{observed}}).Changes[0]
	require.Equal(t, Configure, change.Action)
	require.False(t, change.Drifted, "no other client changed the object")
}
