package scc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

const ownID = `{runAsUser: {type: MustRunAsServiceAccount}, seLinuxContext: {type: RunAsAny}}`

// list are ServiceAccounts.
type list = []metav1.PartialObjectMetadata

// serviceAccount returns an account that is as many seconds old as its age, with a user ID unless that is empty.
func serviceAccount(name string, age int, id string) metav1.PartialObjectMetadata {
	account := metav1.PartialObjectMetadata{}
	account.Name, account.CreationTimestamp = name, metav1.Unix(int64(1_000-age), 0)
	if id != "" {
		account.Annotations = map[string]string{v1alpha1.AccountUIDAnnotation: id}
	}
	return account
}

func TestAllocateAccounts(t *testing.T) {
	t.Parallel()
	type namespace = map[string]string
	given := func(next string) namespace {
		return namespace{v1alpha1.UIDRangeAnnotation: "100/5", v1alpha1.NextAccountUIDAnnotation: next}
	}
	for name, test := range map[string]struct {
		namespace namespace
		accounts  list
		// want has the given IDs, "NAME=ID", and what is wrong with the previous one.
		want []string
		next int64
	}{
		"the first, in the order of their ages": {
			namespace{v1alpha1.UIDRangeAnnotation: "100/5"},
			list{serviceAccount("b", 1, ""), serviceAccount("c", 2, ""), serviceAccount("a", 1, "")},
			[]string{"c=101", "a=102", "b=103"}, 104,
		},
		"nothing is lacking": {given("103"), list{serviceAccount("a", 1, "104")}, nil, 103},
		"after the ID of a deleted account": {
			given("103"), list{serviceAccount("a", 1, "101"), serviceAccount("b", 1, "")},
			[]string{"b=103"}, 104,
		},
		"from the beginning again": {
			given("105"), list{serviceAccount("a", 1, "101"), serviceAccount("b", 1, "")},
			[]string{"b=102"}, 103,
		},
		"the younger of two with the same ID": {
			given("103"), list{serviceAccount("old", 2, "101"), serviceAccount("new", 1, "101")},
			[]string{"new=103: 101 is also the user ID of service account old"}, 104,
		},
		"IDs of another namespace, and of root": {
			given("101"),
			list{serviceAccount("a", 2, "99"), serviceAccount("b", 1, "0"), serviceAccount("c", 0, "105")},
			[]string{
				"a=101: 99 is not one of the user IDs 101-104", "b=102: 0 is not one of the user IDs 101-104",
				"c=103: 105 is not one of the user IDs 101-104",
			}, 104,
		},
		"the ID of the namespace's other pods": {
			given("101"), list{serviceAccount("a", 1, "100")},
			[]string{"a=101: 100 is not one of the user IDs 101-104"}, 102,
		},
		"what is not an ID": {
			given("101"), list{serviceAccount("a", 2, "-1"), serviceAccount("b", 1, "0101")},
			[]string{`a=101: "-1" is not a user ID`, `b=102: "0101" is not a user ID`}, 103,
		},
		"a next ID of another block": {given("7"), list{serviceAccount("a", 1, "")}, []string{"a=101"}, 102},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allocations, next, err := scc.AllocateAccounts(test.namespace, test.accounts)
			require.NoError(t, err)
			var have []string
			for _, allocation := range allocations {
				text := fmt.Sprintf("%s=%d", allocation.Account.Name, allocation.ID)
				if allocation.Repairs != "" {
					text += ": " + allocation.Repairs
				}
				have = append(have, text)
			}
			require.Equal(t, test.want, have)
			require.Equal(t, test.next, next)
		})
	}
}

func TestAllocateAccountsWithoutFreeIDs(t *testing.T) {
	t.Parallel()
	accounts := list{
		serviceAccount("a", 3, "101"), serviceAccount("b", 2, ""), serviceAccount("c", 1, ""),
	}
	allocations, _, err := scc.AllocateAccounts(map[string]string{v1alpha1.UIDRangeAnnotation: "100/3"}, accounts)
	require.ErrorIs(t, err, scc.ErrBlockExhausted)
	require.Len(t, allocations, 1)
	require.Equal(t, int64(102), allocations[0].ID)

	_, _, err = scc.AllocateAccounts(map[string]string{v1alpha1.UIDRangeAnnotation: "100/1"}, accounts[1:])
	require.ErrorIs(t, err, scc.ErrBlockExhausted)

	_, _, err = scc.AllocateAccounts(nil, accounts)
	_, isMissing := errors.AsType[*scc.Missing](err)
	require.True(t, isMissing)
}

// Whatever accounts come, go and carry, two never have the same ID afterwards, each ID is the namespace's, valid ones
// stay, and a second call allocates nothing.
func TestAllocateAccountsInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		namespace := map[string]string{v1alpha1.UIDRangeAnnotation: "100/20"}
		var accounts list
		for step := range 30 {
			switch random.IntN(4) {
			case 0:
				if len(accounts) > 0 {
					i := random.IntN(len(accounts))
					accounts = append(accounts[:i:i], accounts[i+1:]...)
				}
			case 1:
				accounts = append(accounts, serviceAccount(fmt.Sprint("forged", step), step,
					fmt.Sprint(95+random.IntN(30))))
			default:
				accounts = append(accounts, serviceAccount(fmt.Sprint("new", step), step, ""))
			}
			allocations, next, err := scc.AllocateAccounts(namespace, accounts)
			if err != nil {
				require.ErrorIs(t, err, scc.ErrBlockExhausted)
				break
			}
			namespace[v1alpha1.NextAccountUIDAnnotation] = fmt.Sprint(next)
			for _, allocation := range allocations {
				for i := range accounts {
					if accounts[i].Name == allocation.Account.Name {
						accounts[i].Annotations = map[string]string{
							v1alpha1.AccountUIDAnnotation: fmt.Sprint(allocation.ID),
						}
					}
				}
			}
			again, _, err := scc.AllocateAccounts(namespace, accounts)
			require.NoError(t, err)
			require.Empty(t, again)
			ids := map[string]bool{}
			for _, account := range accounts {
				id := account.Annotations[v1alpha1.AccountUIDAnnotation]
				require.False(t, ids[id], "seed %d: %s", seed, id)
				ids[id] = true
			}
		}
	}
}

func TestReviewByTheIDOfTheServiceAccount(t *testing.T) {
	t.Parallel()
	namespace := map[string]string{v1alpha1.UIDRangeAnnotation: "100/5", v1alpha1.MCSAnnotation: "s0:c1,c0"}
	review := func(pod, id string, constraints ...string) scc.Verdict {
		request := scc.Request{
			Pod: spec(t, pod), NamespaceAnnotations: namespace, Usable: everybody,
			AccountAnnotations: func() (map[string]string, error) {
				return serviceAccount("x", 1, id).Annotations, nil
			},
		}
		for i, text := range constraints {
			request.Constraints = append(request.Constraints, scc.Defaulted(constraint(t, fmt.Sprint("c", i), text)))
		}
		return scc.Review(request)
	}
	set := review(`{}`, "103", ownID)
	require.True(t, set.Allowed(), set.Reasons)
	require.Equal(t, int64(103), *set.Pod.Spec.Containers[0].SecurityContext.RunAsUser)
	require.True(t, *set.Pod.Spec.Containers[0].SecurityContext.RunAsNonRoot)
	require.True(t, review(with(`{runAsUser: 103}`), "103", ownID).Allowed())

	other := review(with(`{runAsUser: 102}`), "103", ownID)
	require.False(t, other.Allowed())
	require.Contains(t, fmt.Sprint(other.Reasons), "102 is not allowed: it must be 103")
	require.Nil(t, other.Missing)

	for id, wrong := range map[string]string{
		"99": "99 is not one of the user IDs 101-104", "100": "100 is not one of the user IDs 101-104",
		"root": `"root" is not a user ID`, "0101": `"0101" is not a user ID`,
	} {
		repaired := review(`{}`, id, ownID, open)
		require.False(t, repaired.Allowed(), "a laxer constraint would admit it")
		require.Equal(t, &scc.Missing{Of: "service account", Key: v1alpha1.AccountUIDAnnotation, Wrong: wrong},
			repaired.Missing)
		require.Equal(t, "it cannot be evaluated: the service account's annotation policy.nstpl.dev/scc.uid: "+wrong+
			": wait until the operator repairs it", repaired.Reasons[0].Message)
	}

	early := review(`{}`, "", ownID, open)
	require.False(t, early.Allowed(), "a laxer constraint would admit it")
	require.Equal(t, &scc.Missing{Of: "service account", Key: v1alpha1.AccountUIDAnnotation}, early.Missing)
	require.Equal(t, "it would admit the pod, but a preferred constraint is still waiting for the service account's "+
		"annotation policy.nstpl.dev/scc.uid", early.Reasons[1].Message)
	require.Equal(t, "c1", review(with(`{privileged: true}`), "", ownID,
		`{allowPrivilegedContainer: true, runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}}`).Constraint)
	require.True(t, review(`{}`, "", open, ownID).Allowed(), "the constraint is not tried")
}
