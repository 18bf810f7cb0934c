package namespace

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/codes"
)

// Only an answer about the namespace itself is a denial.
func TestCreationNote(t *testing.T) {
	t.Parallel()
	namespaces := corev1.Resource("namespaces")
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	forbidden := func(message string) error { return apierrors.NewForbidden(namespaces, "n", errors.New(message)) }
	const (
		denied  = "the API server would deny this namespace: "
		unknown = "it is unknown whether the API server would accept this namespace: "
	)
	use := forbidden(codes.TemplateUse.AddTo("ValidatingAdmissionPolicy 'nstpl-template-use' denied request: no"))
	rbac := forbidden(`User "joe" cannot create resource "namespaces" in API group ""`)
	policy := forbidden("ValidatingAdmissionPolicy 'p' denied request: no")
	webhook := status(http.StatusBadRequest, `admission webhook "w" denied the request: no`)
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "n", nil)
	undecided := apierrors.NewBadRequest(`admission webhook "w" does not support dry run`)
	failing := apierrors.NewInternalError(errors.New(`failed calling webhook "w"`))
	for name, test := range map[string]struct {
		err            error
		namesForbidden bool
		want           string
	}{
		"created": {nil, false, ""}, "no right to create": {rbac, false, unknown},
		"a policy": {policy, false, denied}, "a policy, and a template": {policy, true, denied},
		"a template that is named": {use, true, ""}, "a template that is not named": {use, false, denied},
		"a webhook": {webhook, false, denied}, "an invalid name": {invalid, false, denied},
		"a webhook without dry runs": {undecided, false, unknown}, "a webhook that fails": {failing, false, unknown},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), false, unknown},
		"not available":     {apierrors.NewServiceUnavailable("no"), false, unknown},
		"no time":           {apierrors.NewServerTimeout(namespaces, "create", 1), false, unknown},
		"no connection":     {errors.New("connection refused"), false, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := test.want
			if want != "" {
				want += test.err.Error()
			}
			require.Equal(t, want, creationNote(test.err, test.namesForbidden))
		})
	}
}
