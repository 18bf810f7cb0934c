package cluster

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Who is asked to change an object because the API server was busy, or does not know the caller, changes it in vain.
func TestIsDenial(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(message string) error { return apierrors.NewForbidden(pods, "a", errors.New(message)) }
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a webhook": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Message: `webhook "w" denied`}}, true,
		},
		"a policy":           {forbidden("ValidatingAdmissionPolicy 'p' denied request: no"), true},
		"no right":           {forbidden(`User "joe" cannot create resource "pods" in API group ""`), true},
		"an invalid object":  {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), true},
		"no impersonation":   {forbidden(`User "joe" cannot impersonate resource "users" in API group ""`), false},
		"no user":            {apierrors.NewUnauthorized("Unauthorized"), false},
		"no dry runs":        {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), false},
		"too many requests":  {apierrors.NewTooManyRequests("later", 1), false},
		"an internal error":  {apierrors.NewInternalError(errors.New("no leader")), false},
		"a silent webhook":   {apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), false},
		"not available":      {apierrors.NewServiceUnavailable("no"), false},
		"an expired request": {apierrors.NewTimeoutError("no", 1), false},
		"no connection":      {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, IsDenial(test.err))
		})
	}
}
