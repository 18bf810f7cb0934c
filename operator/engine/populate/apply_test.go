package populate

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// stored returns one object, or none, from List.
type stored struct {
	metadata.ResourceInterface
	object *metav1.PartialObjectMetadata
}

func (s stored) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	if s.object != nil {
		list.Items = append(list.Items, *s.object)
	}
	return list, nil
}

func TestWritesRequireTheObservedResourceVersion(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "settings",
		errors.New("the object was modified"))
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	observed := applied(t, object)
	observed.ResourceVersion = "7"
	changed := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		current := observed.DeepCopy()
		current.ResourceVersion = "8"
		change(current)
		return current
	}
	for name, c := range map[string]struct {
		current  *metav1.PartialObjectMetadata
		versions []string
	}{
		"another client keeps changing its labels": {
			changed(func(o *metav1.PartialObjectMetadata) { o.Labels["counter"] = "12" }), []string{"7", ""},
		},
		"a later leader applied another declaration": {
			changed(func(o *metav1.PartialObjectMetadata) {
				o.Annotations[v1alpha1.HashAnnotation] = "later"
			}), []string{"7"},
		},
		"it was recorded as adopted": {changed(func(o *metav1.PartialObjectMetadata) {
			o.Annotations[v1alpha1.AdoptedAnnotation] = "true"
		}), []string{"7"}},
		"another object has the name": {changed(func(o *metav1.PartialObjectMetadata) {
			o.UID = "other"
		}), []string{"7"}},
		"a finalizer was added": {changed(func(o *metav1.PartialObjectMetadata) {
			o.Finalizers = []string{"example.com/keep"}
		}), []string{"7", ""}},
		"it has the label of another template": {changed(func(o *metav1.PartialObjectMetadata) {
			o.Labels[v1alpha1.TemplateNameLabel] = "b"
		}), []string{"7"}},
		"it does not exist": {nil, []string{"7"}},
	} {
		t.Run(name, func(t *testing.T) {
			var versions []string
			_, err := asObserved(t.Context(), stored{object: c.current}, observed, SameRecord,
				func(_ context.Context, version string) (struct{}, error) {
					if versions = append(versions, version); version == "" {
						return struct{}{}, nil
					}
					return struct{}{}, conflict
				})
			require.Equal(t, c.versions, versions)
			require.Equal(t, len(c.versions) == 1, apierrors.IsConflict(err))
		})
	}
	finalized := changed(func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"example.com/keep"} })
	require.False(t, sameForDeletion(observed, finalized), "it must be emptied before it is deleted")
	require.True(t, sameForDeletion(observed, changed(func(o *metav1.PartialObjectMetadata) { o.Labels["a"] = "b" })))
}

// What is expected of the empty lists that mean no rights and no connections agrees with the code of the API server.
// Each apply would need a second write otherwise.
func TestEmptyListsOfGrantsAndPoliciesHaveAnOwner(t *testing.T) {
	for _, source := range []string{
		worker, viewers,
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, " +
			"spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [], egress: []}}",
	} {
		object := declare(teamA(), templateOf(t, "a", source)).Objects[0]
		manager := managedfieldstest.NewTestFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme),
			object.GroupVersionKind())
		require.NoError(t, manager.Apply(object.Unstructured, v1alpha1.FieldManager, true))
		managed := manager.ManagedFields()
		require.Len(t, managed, 1)
		unowned, err := lostFields(object.Object, &managed[0])
		require.NoError(t, err)
		require.Equal(t, joinFields(unowned), expectUnowned(&object, ""), source)
	}
}

func TestTheFirstWriteRecordsEmptyLists(t *testing.T) {
	for source, want := range map[string]string{
		settings: "",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, finalizers: [], managedFields: []}, secrets: [], imagePullSecrets: [{name: b}]}": "metadata.finalizers\nsecrets",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: a, args: []}], volumes: []}}}}":   "spec.template.spec.volumes",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: []}":                                                     "",
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {colors: []}, status: {sizes: []}}":                                   "",
	} {
		object := declare(teamA(), templateOf(t, "a", source)).Objects[0]
		require.Equal(t, want, expectUnowned(&object, ""), source)
	}
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	require.Equal(t, "data.a\ndata.b", expectUnowned(&object, "data.b\ndata.a"),
		"fields in the record are expected again")
}

// answer is the answer of an API server to each apply.
type answer struct {
	dynamic.ResourceInterface
	object *unstructured.Unstructured
}

func (a answer) Patch(
	context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string,
) (*unstructured.Unstructured, error) {
	return a.object, nil
}

// answering returns a client for an object that the API server stored as it is declared, but for metadata and changes.
func answering(
	t *testing.T, declared *Object, metadata *metav1.PartialObjectMetadata, changes ...func(*unstructured.Unstructured),
) resource {
	t.Helper()
	object := &unstructured.Unstructured{Object: maps.Clone(declared.DeepCopy().Object)}
	if metadata != nil {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(metadata)
		require.NoError(t, err)
		object.Object["metadata"] = fields["metadata"]
	}
	for _, change := range changes {
		change(object)
	}
	return resource{stored{object: metadata}, answer{object: object}}
}

// An object that the API server stored otherwise than declared was applied, and is applied again until it is as
// declared. It keeps the namespace from being populated if it restricts users.
func TestWhatAdmissionAlteredIsAFinding(t *testing.T) {
	t.Parallel()
	for source, test := range map[string]struct {
		field    []string
		name     string
		severity Severity
	}{
		settings: {[]string{"data", "color"}, "configmap/settings: is not stored as it is declared: data", Warning},
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}, spec: {podSelector: {}, ingress: [{ports: [{port: 1}]}]}}": {
			[]string{"spec", "ingress"}, "networkpolicy.networking.k8s.io/deny of template a: is not stored as it is declared: " +
				"spec.ingress", Error,
		},
	} {
		object := declare(teamA(), templateOf(t, "a", source)).Objects[0]
		observed := applied(t, object)
		change := Change{
			Action: Create, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: "a", Declared: &object,
		}
		outcome := Outcome{Change: change}
		var err error
		outcome.Written, outcome.Created, err = create(t.Context(), answering(t, &object, observed), change)
		require.NoError(t, err)
		outcome.Written, outcome.Created, err = create(t.Context(), answering(t, &object, observed,
			func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, test.field...) }), change)
		outcome.Failure = NewFailure(err, "team-a")
		require.True(t, outcome.Created)
		require.Equal(t, observed.UID, outcome.Written.UID)
		result := Result{Outcomes: []Outcome{outcome}}
		require.Equal(t, []ObjectID{object.ID()}, result.Unconfirmed())
		findings := Findings(Plan{}, result)
		require.Len(t, findings, 1)
		require.Equal(t, test.severity, findings[0].Severity)
		require.Contains(t, findings[0].String(), test.name)
		require.Equal(t, FindingAltered, findings[0].Reason)
		require.Len(t, allowedPrunes([]Change{change}, result.Outcomes), 1, "the object exists")
		require.NotEmpty(t, ExistingObjects(Plan{Declared: Declared{Namespace: teamA()}}, result))

		ns := teamA()
		plan := func(ns *corev1.Namespace, unconfirmed ...ObjectID) Change {
			template := templateOf(t, "a", source)
			return NewPlan(declare(ns, template), match.NewIndex(template), Observed{
				Objects: []*metav1.PartialObjectMetadata{observed}, Unconfirmed: unconfirmed,
			}).Changes[0]
		}
		require.Equal(t, Unchanged, plan(ns).Action)
		require.Equal(t, Configure, plan(ns, object.ID()).Action)
		for _, other := range []string{"", "; configmap/other: drifted: data.b changed"} {
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue,
				Message: "1 object of a; " + findings[0].String() + other,
			}}
			require.Equal(t, Configure, plan(ns).Action, "a new leader reads it in the condition")
		}
		ns.Status.Conditions[0].Message = "1 object of a; " + strings.Repeat("x", 9) + "/other: timeout…"
		require.Equal(t, Configure, plan(ns).Action, "the condition may lack it")
		ns.Status.Conditions[0].Message = "1 object of a; configmap/other: drifted: data.b changed"
		require.Equal(t, Unchanged, plan(ns).Action)
	}
}

// TestReplacementWhoseAnswerWasLostIsAppliedAgain checks what follows from the object that exists after a deletion, when the
// creation of the replacement is a conflict.
func TestReplacementWhoseAnswerWasLostIsAppliedAgain(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("it exists"))
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	before := applied(t, object)
	before.UID = "before"
	change := Change{Kind: object.GroupVersionKind(), Name: object.GetName(), Declared: &object, Observed: before}
	existing := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		current := before.DeepCopy()
		current.UID = "after"
		change(current)
		return current
	}
	for name, test := range map[string]struct {
		existing *metav1.PartialObjectMetadata
		isOurs   bool
		message  string
	}{
		"the replacement": {existing(func(*metav1.PartialObjectMetadata) {}), true, ""},
		"one of another client": {existing(func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
		}), false, "another client created an object of the same name"},
		"the one that is being deleted": {existing(func(o *metav1.PartialObjectMetadata) {
			o.UID, o.Finalizers = "before", []string{"example.com/keep"}
		}), false, "remove example.com/keep from its metadata.finalizers"},
		"none": {nil, false, "it exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written, err := afterConflict(t.Context(), answering(t, &object, test.existing), change, conflict)
			if test.isOurs {
				require.NoError(t, err)
				require.Equal(t, test.existing.UID, written.UID)
				return
			}
			require.ErrorContains(t, err, test.message)
			require.Nil(t, written)
		})
	}
}
