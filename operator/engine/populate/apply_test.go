package populate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
		}), []string{"7"}},
		"it has the label of another template": {changed(func(o *metav1.PartialObjectMetadata) {
			o.Labels[v1alpha1.TemplateNameLabel] = "b"
		}), []string{"7"}},
		"it does not exist": {nil, []string{"7"}},
	} {
		t.Run(name, func(t *testing.T) {
			var versions []string
			_, err := asObserved(t.Context(), stored{object: c.current}, observed,
				func(version string) (struct{}, error) {
					if versions = append(versions, version); version == "" {
						return struct{}{}, nil
					}
					return struct{}{}, conflict
				})
			require.Equal(t, c.versions, versions)
			require.Equal(t, len(c.versions) == 1, apierrors.IsConflict(err))
		})
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

// Patch returns the object as it was stored.
func (s stored) Patch(
	context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string,
) (*metav1.PartialObjectMetadata, error) {
	return s.object, nil
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
			written, err := afterConflict(t.Context(), stored{object: test.existing}, change, conflict)
			if test.isOurs {
				require.NoError(t, err)
				require.Equal(t, test.existing, written)
				return
			}
			require.ErrorContains(t, err, test.message)
			require.Nil(t, written)
		})
	}
}
