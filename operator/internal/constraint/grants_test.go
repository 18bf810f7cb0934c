package constraint

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// Whoever creates a deleted ServiceAccount or Namespace again is not listed, even before the operator has removed the
// entry.
func TestListedByReferences(t *testing.T) {
	t.Parallel()
	seen := scc.Identity{Namespace: "1", Account: "2"}
	constraint, _, err := scc.RemoveStale(&v1alpha1.SecurityContextConstraints{
		ObjectMeta: metav1.ObjectMeta{UID: "0"},
		Users:      []string{"jane", "system:serviceaccount:a:b", "system:serviceaccount:a:later"},
		Groups:     []string{"system:serviceaccounts:a", "devs"},
	}, func(reference scc.Reference) (scc.Identity, error) {
		switch reference.Account {
		case "b":
			return seen, nil
		case "":
			return scc.Identity{Namespace: seen.Namespace}, nil
		}
		return scc.Identity{}, nil
	})
	require.NoError(t, err)
	account := func(name string, groups ...string) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{Username: "system:serviceaccount:a:" + name, Groups: groups}
	}
	for name, test := range map[string]struct {
		who     authenticationv1.UserInfo
		current scc.Identity
		want    bool
	}{
		"a user": {authenticationv1.UserInfo{Username: "jane"}, scc.Identity{}, true},
		"a group": {
			authenticationv1.UserInfo{Username: "joe", Groups: []string{"devs"}}, scc.Identity{}, true,
		},
		"nobody":                   {authenticationv1.UserInfo{Groups: []string{""}}, seen, false},
		"the account":              {account("b"), seen, true},
		"another account":          {account("b"), scc.Identity{Namespace: "1", Account: "3"}, false},
		"in another namespace":     {account("b"), scc.Identity{Namespace: "3", Account: "2"}, false},
		"a deleted account":        {account("b"), scc.Identity{Namespace: "1"}, false},
		"one that was yet to come": {account("later"), scc.Identity{Namespace: "1", Account: "9"}, true},
		"the namespace":            {account("x", "system:serviceaccounts", "system:serviceaccounts:a"), seen, true},
		"another namespace": {
			account("x", "system:serviceaccounts", "system:serviceaccounts:a"), scc.Identity{Namespace: "3"}, false,
		},
		"another, by another group": {
			account("x", "system:serviceaccounts:a", "devs"), scc.Identity{Namespace: "3"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants := NewGrants(nil, nil)
			grants.current = func(context.Context, scc.Reference) (scc.Identity, error) {
				return test.current, nil
			}
			listed, err := grants.listed(t.Context(), test.who, constraint)
			require.NoError(t, err)
			require.Equal(t, test.want, listed)
		})
	}
	grants := NewGrants(nil, nil)
	grants.current = func(context.Context, scc.Reference) (scc.Identity, error) {
		return scc.Identity{}, errors.New("unavailable")
	}
	listed, err := grants.listed(t.Context(), account("b"), constraint)
	require.ErrorContains(t, err, "unavailable")
	require.False(t, listed)
}
