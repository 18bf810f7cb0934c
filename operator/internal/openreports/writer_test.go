package openreports

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// unanswered is a client whose creations are carried out, and whose answers are lost.
type unanswered struct {
	client.Client
	create func()
}

func (u unanswered) Create(context.Context, client.Object, ...client.CreateOption) error {
	u.create()
	return errors.New("no answer")
}

// A Report whose creation was not answered, or that is being created while its findings go, is deleted.
func TestReportsAreDeletedAlthoughTheirCreationIsNotKnown(t *testing.T) {
	t.Parallel()
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	reads := fake.NewSimpleMetadataClient(scheme)
	resource := groupVersion.WithResource("reports")
	writes := unanswered{create: func() {
		require.NoError(t, reads.Tracker().Create(resource, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: "Report"},
			ObjectMeta: metav1.ObjectMeta{
				Name: Name, Namespace: "a", UID: types.UID("1"), Labels: map[string]string{ManagedByLabel: Name},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: FieldManager}},
			},
		}, "a"))
	}}
	w := NewWriter(writes, reads)
	w.written = map[string]types.UID{}
	w.Report("a", []populate.Finding{{Severity: populate.Error}})
	require.EqualError(t, w.write(t.Context(), "a"), "no answer")
	_, err := reads.Tracker().Get(resource, "a", Name)
	require.NoError(t, err)

	namespace, _ := w.queue.Get()
	w.Report("a", nil)
	w.queue.Done(namespace)
	require.Equal(t, 1, w.queue.Len(), "it is written once more")
	require.NoError(t, w.write(t.Context(), "a"))
	_, err = reads.Tracker().Get(resource, "a", Name)
	require.Error(t, err)

	sent := len(reads.Actions())
	require.NoError(t, w.write(t.Context(), "a"))
	require.Len(t, reads.Actions(), sent, "no request")
}

// After the CustomResourceDefinition was deleted and created again, all Reports are written again.
func TestReportsAreWrittenAgainAfterTheirKindIsBack(t *testing.T) {
	t.Parallel()
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	w := NewWriter(nil, fake.NewSimpleMetadataClient(scheme))
	w.Report("a", []populate.Finding{{Severity: populate.Error}})
	w.Report("b", nil)
	for range 2 {
		namespace, _ := w.queue.Get()
		w.queue.Done(namespace)
	}
	w.written = map[string]types.UID{"a": "1"}
	require.NoError(t, w.list(t.Context()))
	require.Equal(t, 1, w.queue.Len())
	namespace, _ := w.queue.Get()
	require.Equal(t, "a", namespace)
}
