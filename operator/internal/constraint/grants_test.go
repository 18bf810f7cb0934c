package constraint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

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

// reviews are answers about the verb use, which it counts.
type reviews struct {
	authorizationclient.SubjectAccessReviewInterface
	allowed bool
	asked   int
}

func (r *reviews) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	r.asked++
	review.Status.Allowed = r.allowed
	return review, nil
}

// A permission is remembered for longer than a denial: a user who was just granted a constraint soon has it.
func TestAnswersAboutTheVerbUseAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &reviews{}
		grants := NewGrants(api, nil)
		isSettled := true
		mayUse := func(namespace string) bool {
			allowed, err := grants.mayUse(t.Context(), authenticationv1.UserInfo{Username: "jane"}, namespace,
				&v1alpha1.SecurityContextConstraints{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, isSettled)
			require.NoError(t, err)
			return allowed
		}
		require.False(t, mayUse("a"))
		api.allowed = true
		require.False(t, mayUse("a"))
		require.Equal(t, 1, api.asked)
		require.True(t, mayUse("b"), "each namespace has an answer of its own")
		time.Sleep(deniedLifetime + time.Millisecond)
		require.True(t, mayUse("a"))
		require.Equal(t, 3, api.asked)
		api.allowed = false
		time.Sleep(allowedLifetime - time.Millisecond)
		require.True(t, mayUse("a"))
		time.Sleep(2 * time.Millisecond)
		require.False(t, mayUse("a"))

		// In a namespace that is being initialized, a denial may end at any time.
		isSettled = false
		require.False(t, mayUse("new"))
		api.allowed = true
		require.True(t, mayUse("new"))
	})
}
