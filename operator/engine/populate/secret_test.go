package populate

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestFailuresQuoteNoValuesOfSecrets has messages as API servers and their webhooks write them, with a value in each
// that may contain one.
func TestFailuresQuoteNoValuesOfSecrets(t *testing.T) {
	t.Parallel()
	secrets, kind := schema.GroupResource{Resource: "secrets"}, schema.GroupKind{Kind: "Secret"}
	const value = "hunter2"
	invalid := apierrors.NewInvalid(kind, "token", field.ErrorList{
		field.Invalid(field.NewPath("data").Key("pin"), value, "must be a number, not "+value),
		field.Required(field.NewPath("type"), value),
	})
	const hidden = "and its message may contain values of the Secret: " +
		"apply the Secret yourself with --dry-run=server to read it"
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"invalid fields": {
			invalid, `Secret "token" is invalid: data[pin]: Invalid value, type: Required value`,
		},
		"a field that cannot change": {
			fmt.Errorf("cannot be changed in place: annotate it: %w", invalid),
			`cannot be changed in place: annotate it: Secret "token" is invalid: ` +
				`data[pin]: Invalid value, type: Required value`,
		},
		"a wrong type": {
			&apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 500,
				Message: "failed to create typed patch object: .data.pin: expected string, got " + value,
			}},
			"the API server answered with status 500, " + hidden,
		},
		"a webhook": {
			apierrors.NewForbidden(secrets, "token", errors.New("admission webhook denied "+value)),
			"the API server answered with status 403, " + hidden,
		},
		"a policy": {
			&apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid,
				Message: "ValidatingAdmissionPolicy 'p' denied request: refused: " + value,
				Details: &metav1.StatusDetails{
					Name: "token", Causes: []metav1.StatusCause{{Message: "refused: " + value}},
				},
			}},
			"the API server answered with status 422, " + hidden,
		},
		"a missing permission": {
			apierrors.NewForbidden(secrets, "token",
				errors.New(`User "o" cannot patch resource "secrets" in API group "" in the namespace "n"`)),
			`secrets "token" is forbidden: User "o" cannot patch resource "secrets" in API group "" in the namespace "n"`,
		},
		"a quota": {
			apierrors.NewForbidden(secrets, "token", errors.New("exceeded quota: q, requested: secrets=1")),
			`secrets "token" is forbidden: exceeded quota: q, requested: secrets=1`,
		},
		"no answer": {errors.New("connection refused"), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := failure(test.err, "n")
			shown := f.withoutValues(kind)
			require.Equal(t, test.want, shown.Error())
			require.NotContains(t, fmt.Sprintf("%+v %v", shown, errors.Unwrap(shown)), value)
			require.Equal(t, f.Reason, shown.Reason)
			require.Equal(t, f.MayPass(), shown.MayPass())

			require.Equal(t, test.err.Error(), f.withoutValues(schema.GroupKind{Kind: "ConfigMap"}).Error(),
				"messages about other kinds stay as they are")
		})
	}
}
