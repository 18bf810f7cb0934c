package sources

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Only the answer that names the object takes a source away.
func TestIsMissing(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	notServed := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"the object":     {apierrors.NewNotFound(secrets, "pull"), true},
		"another object": {apierrors.NewNotFound(secrets, "other"), false},
		"the kind":       {notServed, false},
		"denied":         {apierrors.NewForbidden(secrets, "pull", errors.New("no role")), false},
		"no answer":      {errors.New("connection refused"), false},
		"no error":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, isMissing(test.err, "pull"))
		})
	}
}
