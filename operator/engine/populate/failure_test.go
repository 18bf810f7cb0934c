package populate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/codes"
)

func TestFailureMayPass(t *testing.T) {
	t.Parallel()
	settings := schema.GroupResource{Resource: "configmaps"}
	kind := schema.GroupKind{Kind: "ConfigMap"}
	forbidden := func(why string) error { return apierrors.NewForbidden(settings, "x", errors.New(why)) }
	lasting := NewFailure(forbidden("no"), "n")
	transient := NewFailure(apierrors.NewTimeoutError("no", 1), "n")
	after := func(reason Failure, cause *Failure) error {
		reason.err = fmt.Errorf("waits: %w", cause)
		return &reason
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no answer": {
			&url.Error{Op: "Patch", URL: "https://x", Err: errors.New("connection refused")}, true,
		},
		"a deadline":            {context.DeadlineExceeded, true},
		"a timeout":             {apierrors.NewTimeoutError("no", 1), true},
		"too many requests":     {apierrors.NewTooManyRequests("no", 1), true},
		"an unavailable server": {apierrors.NewServiceUnavailable("no"), true},
		"an internal error":     {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"a conflict":            {apierrors.NewConflict(settings, "x", errors.New("no")), true},
		"a Role was just changed": {
			&Failure{Reason: ReasonWaitsForRole, err: errors.New("waits")}, true,
		},
		"a quota that is not counted yet": {
			forbidden("status unknown for quota: budget, resources: configmaps"), true,
		},
		"the quota of a policy space that is not counted yet": {
			forbidden(codes.QuotaUncounted.AddTo("usage of pods in policyspace \"a\" is not counted yet")), true,
		},
		"a source that waits to come back": {SourceDelayed(pullRef, time.Now()).Failure, true},
		"a source that does not exist":     {SourceNotFound(pullRef).Failure, false},
		"an exceeded quota": {
			forbidden("exceeded quota: budget, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"),
			false,
		},
		"a missing permission": {forbidden("no"), false},
		"an invalid object": {apierrors.NewInvalid(kind, "x",
			field.ErrorList{field.Required(field.NewPath("a"), "")}), false},
		"a wrong type":    {apierrors.NewBadRequest("no"), false},
		"an unknown kind": {&meta.NoKindMatchError{GroupKind: kind}, false},
		"a cluster-scoped kind": {
			&Failure{Reason: ReasonClusterScoped, err: errors.New("no")}, false,
		},
		"a finalizer":    {&Failure{Reason: ReasonHeldByFinalizer, err: errors.New("no")}, false},
		"another error":  {errors.New("no"), false},
		"a missing kind": {apierrors.NewNotFound(settings, ""), false},

		"a Role that a lasting failure keeps":     {after(Failure{Reason: ReasonNotRevoked}, lasting), false},
		"a Role that a transient failure keeps":   {after(Failure{Reason: ReasonNotRevoked}, transient), true},
		"a RoleBinding whose Role failed":         {after(Failure{Reason: ReasonRoleNotAsDeclared}, lasting), false},
		"a RoleBinding whose Role is tried again": {after(Failure{Reason: ReasonRoleNotAsDeclared}, transient), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, NewFailure(test.err, "n").MayPass())
		})
	}
}

// The operator copies a source that waits to come back once its time has come, so other tries before are in vain.
func TestASourceThatWaitsIsNotTriedAgain(t *testing.T) {
	require.False(t, SourceDelayed(pullRef, time.Now()).Failure.Transient())
}

// A failure that users of a namespace can prepare must not stop what happens in other namespaces.
func TestLocalFailures(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil)
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a",
		errors.New("exceeded quota: none, requested: count/configmaps=1, used: count/configmaps=2"))
	inTheWay := NewFailure(invalid, "team-a")
	inTheWay.InTheWay = true
	follows := func(cause *Failure) *Failure {
		return &Failure{Reason: ReasonRoleNotAsDeclared, err: fmt.Errorf("its Role: %w", cause)}
	}
	for name, test := range map[string]struct {
		failure *Failure
		want    bool
	}{
		"an invalid object":                  {NewFailure(invalid, "team-a"), false},
		"another client's object":            {inTheWay, true},
		"a quota that is full":               {NewFailure(full, "team-a"), true},
		"a right that the operator lacks":    {NewFailure(apierrors.NewForbidden(schema.GroupResource{}, "a", nil), "team-a"), false},
		"a finalizer":                        {&Failure{Reason: ReasonHeldByFinalizer, err: errors.New("held")}, true},
		"the invalid Role of a RoleBinding":  {follows(NewFailure(invalid, "team-a")), false},
		"a RoleBinding whose Role is locked": {follows(inTheWay), true},
	} {
		require.Equal(t, test.want, test.failure.IsLocal(), name)
	}
}
