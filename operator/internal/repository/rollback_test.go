package repository

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestRollbackOf(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	at := func(commit string, second int64) committed {
		return committed{commit, time.Unix(second, 0).UTC(), "foo corp/a "}
	}
	for name, test := range map[string]struct {
		inForce, newest committed
		waits           bool
	}{
		"none in force":      {committed{}, at(b, 1), false},
		"newer":              {at(a, 1), at(b, 2), false},
		"of the same second": {at(a, 1), at(b, 1), false},
		"the same":           {at(a, 1), at(a, 1), false},
		"older":              {at(a, 2), at(b, 1), true},
		"without a time":     {at(a, 2), committed{commit: b}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.waits, rollbackOf(test.inForce, test.newest, "foo") != nil)
			require.Equal(t, test.inForce, parseCommitted(test.inForce.String()))
		})
	}
	require.Equal(t, "commit bbbbbbb of 1970-01-01T00:00:01Z is older than commit aaaaaaa of 1970-01-01T00:00:02Z, so "+
		"it may be an undone change: confirm it with kubectl nstpl sync confirm foo "+b,
		rollbackOf(at(a, 2), at(b, 1), "foo").message)
	// Milliseconds instead of seconds are in the year 55840, which RFC 3339 does not have.
	require.Equal(t, committed{commit: a, path: "foo corp/a "}, parseCommitted(at(a, 1_700_000_000_000).String()))
	// Earlier versions recorded no path, and before that no time.
	withoutPath := committed{commit: a, at: time.Unix(1, 0).UTC()}
	require.Equal(t, withoutPath, parseCommitted(withoutPath.String()))
	require.Equal(t, committed{commit: a}, parseCommitted(a))
}

func TestMayRollBack(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("a", 40)
	verify := &v1alpha1.GitVerification{}
	for name, test := range map[string]struct {
		git       *v1alpha1.GitSource
		confirmed string
		want      bool
	}{
		"a source of Flux":                {nil, "", true},
		"no signature is required":        {&v1alpha1.GitSource{}, "", true},
		"a signature is required":         {&v1alpha1.GitSource{Verify: verify}, "", false},
		"the branch is named":             {&v1alpha1.GitSource{Verify: verify, Ref: &v1alpha1.GitReference{Branch: "main"}}, "", false},
		"the commit is named by its hash": {&v1alpha1.GitSource{Verify: verify, Ref: &v1alpha1.GitReference{Commit: old}}, "", true},
		"it is confirmed":                 {&v1alpha1.GitSource{Verify: verify}, old, true},
		"another one is confirmed":        {&v1alpha1.GitSource{Verify: verify}, strings.Repeat("b", 40), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := repositoryOf("repository")
			repository.Spec.Git = test.git
			repository.Annotations = map[string]string{v1alpha1.ConfirmedRollbackAnnotation: test.confirmed}
			require.Equal(t, test.want, mayRollBack(repository, old))
		})
	}
}
