package survey

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestFails(t *testing.T) {
	t.Parallel()
	configMaps := schema.GroupResource{Resource: "configmaps"}
	forbidden := func(message string) error {
		return apierrors.NewForbidden(configMaps, "c", errors.New(message))
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "c",
		field.ErrorList{field.Invalid(field.NewPath("data"), "x", "is wrong")})
	for name, test := range map[string]struct {
		refusal error
		want    bool
	}{
		"no error":          {nil, false},
		"an invalid object": {invalid, true},
		"cannot be changed in place": {
			fmt.Errorf("cannot be changed in place: %w: %w", errors.New("annotate it"), invalid), true,
		},
		"a typo":         {apierrors.NewBadRequest(`unknown field "spec.hards"`), true},
		"a missing kind": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Widget"}}, true},
		"a type":         {errors.New("failed to convert new object (a/budget; /v1, Kind=ResourceQuota): x"), true},
		"a field": {
			errors.New("failed to create typed patch object (a/budget; /v1, Kind=ResourceQuota): x"), true,
		},
		"another error": {errors.New("connection refused"), false},
		"a quota":       {forbidden("exceeded quota: budget"), true},
		"a policy": {
			forbidden("ValidatingAdmissionPolicy 'no-secrets' with binding 'x' denied request: x"), true,
		},
		"a webhook": {
			apierrors.NewBadRequest(`admission webhook "a.example.com" denied the request: x`), true,
		},
		"may not patch":  {forbidden(`User "ann" cannot patch resource "configmaps" in API group ""`), false},
		"may not create": {forbidden(`User "ann" cannot create resource "configmaps" in API group ""`), false},
		"may not escalate": {
			forbidden(`user "ann" is attempting to grant RBAC permissions not currently held`), false,
		},
		"a guard of nstpl": {
			forbidden("ValidatingAdmissionPolicy 'nstpl-object-guard' with binding 'x' denied request"), false,
		},
		"the webhook of nstpl": {
			forbidden(`admission webhook "operator.policy.nstpl.dev" denied the request: x`), false,
		},
		"not logged in":     {apierrors.NewUnauthorized("x"), false},
		"too many requests": {apierrors.NewTooManyRequests("x", 1), false},
		"an internal error": {apierrors.NewInternalError(errors.New("x")), false},
		"a timeout":         {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Sides{Refusal: test.refusal}.Fails())
			require.False(t, Sides{Refusal: test.refusal, Replaced: true}.Fails())
		})
	}
}
