package populate

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Where a declared object is itself too large, replacing the existing one would only delete it.
func TestOnlySmallObjectsReplaceFilledOnes(t *testing.T) {
	tooLarge := errors.New("etcdserver: request is too large")
	existing := &metav1.PartialObjectMetadata{}
	refusedWith := func(value string, err error) *metav1.PartialObjectMetadata {
		declared := &Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": value}}}}
		change := Change{Action: Configure, Observed: existing, Declared: declared}
		return refused(t.Context(), resource{}, change, err)
	}
	require.Same(t, existing, refusedWith("small", tooLarge))
	require.Nil(t, refusedWith(strings.Repeat("x", smallSize), tooLarge))
	require.Nil(t, refusedWith("small", errors.New("internal error")))
}
