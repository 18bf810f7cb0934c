package populate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// TestFailuresQuoteNoValuesOfSecrets has messages as API servers and their webhooks write them, with a value in each
// that may contain one.
func TestFailuresQuoteNoValuesOfSecrets(t *testing.T) {
	t.Parallel()
	secrets, kind := schema.GroupResource{Resource: "secrets"}, schema.GroupKind{Kind: "Secret"}
	change := Change{Kind: kind.WithVersion("v1")}
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
		"a quota of a policy space that is not counted": {
			apierrors.NewForbidden(secrets, "token", errors.New("s is not counted yet (nstpl:quota-uncounted)")),
			`secrets "token" is forbidden: s is not counted yet (nstpl:quota-uncounted)`,
		},
		"no answer": {errors.New("connection refused"), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFailure(test.err, "n")
			shown := f.withoutValues(change)
			require.Equal(t, test.want, shown.Error())
			require.NotContains(t, fmt.Sprintf("%+v %v", shown, errors.Unwrap(shown)), value)
			require.Equal(t, f.Reason, shown.Reason)
			require.Equal(t, f.MayPass(), shown.MayPass())

			other := Change{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Declared: &Object{
				Unstructured: &unstructured.Unstructured{},
			}}
			require.Equal(t, test.err.Error(), f.withoutValues(other).Error(), "messages about other kinds stay as they are")
			other.Declared.SetAnnotations(map[string]string{v1alpha1.CopyOfAnnotation: "a/b"})
			other.Action, other.Declared, other.SourceLost = Prune, nil, other.Declared
			require.Equal(t, strings.NewReplacer(`Secret "`, `ConfigMap "`, "the Secret", "the ConfigMap", "apply", "delete").
				Replace(test.want), f.withoutValues(other).Error(), "but not those about copies")
			dropped := Change{Action: Prune, Kind: other.Kind, Observed: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{v1alpha1.CopyOfAnnotation: "a/b"},
			}}}
			require.Equal(t, f.withoutValues(other).Error(), f.withoutValues(dropped).Error(), "also of dropped ones")
		})
	}
}
