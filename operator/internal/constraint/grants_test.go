package constraint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// A ServiceAccount or Namespace that was deleted and created again is not listed, even before the operator has removed
// the entry.
func TestIsListed(t *testing.T) {
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
		"a user and group without names": {
			authenticationv1.UserInfo{Groups: []string{""}}, seen, false,
		},
		"the recorded account": {account("b"), seen, true},
		"the account, created again": {
			account("b"), scc.Identity{Namespace: "1", Account: "3"}, false,
		},
		"the account, in a namespace that was created again": {
			account("b"), scc.Identity{Namespace: "3", Account: "2"}, false,
		},
		"a deleted account": {account("b"), scc.Identity{Namespace: "1"}, false},
		"an account that was created after the entry": {
			account("later"), scc.Identity{Namespace: "1", Account: "9"}, true,
		},
		"the recorded namespace": {account("x", "system:serviceaccounts",
			"system:serviceaccounts:a"), seen, true},
		"the namespace, created again": {
			account("x", "system:serviceaccounts", "system:serviceaccounts:a"), scc.Identity{Namespace: "3"}, false,
		},
		"the namespace, created again, and another group": {
			account("x", "system:serviceaccounts:a", "devs"), scc.Identity{Namespace: "3"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed, err := isListed(constraint, test.who, func(scc.Reference) (scc.Identity, error) {
				return test.current, nil
			})
			require.NoError(t, err)
			require.Equal(t, test.want, listed)
		})
	}
	listed, err := isListed(constraint, account("b"), func(scc.Reference) (scc.Identity, error) {
		return scc.Identity{}, errors.New("unavailable")
	})
	require.ErrorContains(t, err, "unavailable")
	require.False(t, listed)
}
