package quota_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// limitingSpace returns a policy space s with a limit on namespaces, if it is not empty, and one per creator.
func limitingSpace(namespaces string, perCreator *v1alpha1.NamespacesPerCreator) *v1alpha1.PolicySpace {
	s := space(nil, nil)
	s.Spec.Quota.NamespacesPerCreator = perCreator
	if namespaces != "" {
		s.Spec.Quota.Hard = list("count/namespaces", namespaces)
	}
	return s
}

func TestCheckNamespaces(t *testing.T) {
	t.Parallel()
	two := &v1alpha1.NamespacesPerCreator{Hard: 2}
	for name, test := range map[string]struct {
		space   *v1alpha1.PolicySpace
		creator string
		use     quota.NamespaceUse
		want    string
	}{
		"nothing is limited": {space: space(list("pods", "1"), nil), use: quota.NamespaceUse{Existing: 9}},
		"the last one fits":  {space: limitingSpace("3", nil), use: quota.NamespaceUse{Existing: 1, Reserved: 1}},
		"one more than the limit": {
			space: limitingSpace("3", nil), use: quota.NamespaceUse{Existing: 3, Reserved: 2},
			want: `exceeded quota in policyspace "s", requested: count/namespaces=4, limit: count/namespaces=3, ` +
				`used: count/namespaces=3`,
		},
		"more exist than the limit": {
			space: limitingSpace("3", nil), use: quota.NamespaceUse{Existing: 5},
			want: `exceeded quota in policyspace "s", requested: count/namespaces=6, limit: count/namespaces=3, ` +
				`used: count/namespaces=5`,
		},
		"reservations take the last room": {
			space: limitingSpace("3", nil), use: quota.NamespaceUse{Existing: 2, Reserved: 1},
			want: `the last room in policyspace "s" is reserved while 1 namespace is being created: try again`,
		},
		"a limit of 0": {
			space: limitingSpace("0", nil),
			want: `exceeded quota in policyspace "s", requested: count/namespaces=1, limit: count/namespaces=0, ` +
				`used: count/namespaces=0`,
		},
		"a creator with room": {
			space: limitingSpace("", two), creator: "jane",
			use: quota.NamespaceUse{Existing: 9, ExistingOfCreator: 1},
		},
		"a creator without room": {
			space: limitingSpace("9", two), creator: "jane",
			use:  quota.NamespaceUse{Existing: 4, ExistingOfCreator: 2},
			want: `user jane has created 2 namespaces in and below policyspace "s", and its limit per creator is 2`,
		},
		"the limit of a creator is certain, that of the space is not": {
			space: limitingSpace("5", two), creator: "jane",
			use:  quota.NamespaceUse{Existing: 4, Reserved: 1, ExistingOfCreator: 2},
			want: `user jane has created 2 namespaces in and below policyspace "s", and its limit per creator is 2`,
		},
		"reservations of a creator": {
			space: limitingSpace("", two), creator: "jane",
			use:  quota.NamespaceUse{Existing: 4, Reserved: 3, ExistingOfCreator: 0, ReservedOfCreator: 2},
			want: `the last room in policyspace "s" is reserved while 2 namespaces are being created: try again`,
		},
		"reservations of other creators": {
			space: limitingSpace("", two), creator: "jane",
			use: quota.NamespaceUse{Existing: 4, Reserved: 3, ExistingOfCreator: 0, ReservedOfCreator: 1},
		},
		"an unknown creator is not limited": {
			space: limitingSpace("", two), use: quota.NamespaceUse{Existing: 4, ExistingOfCreator: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := quota.CheckNamespaces(test.space, quota.Creator{Name: test.creator}, test.use)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}

func TestCreatorLimit(t *testing.T) {
	t.Parallel()
	limit := &v1alpha1.NamespacesPerCreator{Hard: 5, Exceptions: []v1alpha1.CreatorException{
		{Kind: "User", Name: "few", Hard: new(int32(1))},
		{Kind: "User", Name: "several", Hard: new(int32(1))},
		{Kind: "Group", Name: "many", Hard: new(int32(20))},
		{Kind: "Group", Name: "admins"},
		{Kind: "ServiceAccount", Namespace: "ci", Name: "builder", Hard: new(int32(9))},
		{Kind: "Group", Name: "system:serviceaccounts:tools", Hard: new(int32(7))},
	}}
	for name, test := range map[string]struct {
		limit   *v1alpha1.NamespacesPerCreator
		creator quota.Creator
		want    int
		limited bool
	}{
		"without a limit":                 {creator: quota.Creator{Name: "jane"}},
		"another user":                    {limit, quota.Creator{Name: "jane"}, 5, true},
		"an exception may be lower":       {limit, quota.Creator{Name: "few"}, 1, true},
		"the largest exception applies":   {limit, quota.Creator{Name: "several", Groups: []string{"many"}}, 20, true},
		"an exception without a limit":    {limit, quota.Creator{Name: "few", Groups: []string{"admins"}}, 0, false},
		"a group with the name of a user": {limit, quota.Creator{Name: "many", Groups: []string{"few"}}, 5, true},
		"a ServiceAccount":                {limit, quota.Creator{Name: "system:serviceaccount:ci:builder"}, 9, true},
		"a ServiceAccount of that name elsewhere": {
			limit, quota.Creator{Name: "system:serviceaccount:other:builder"}, 0, true,
		},
		"the group of a ServiceAccount": {limit, quota.Creator{Name: "system:serviceaccount:tools:any"}, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed, limited := quota.CreatorLimit(test.limit, test.creator)
			require.Equal(t, test.limited, limited)
			require.Equal(t, test.want, allowed)
		})
	}
}

func TestWithReservationReplacesThoseOfEarlierStates(t *testing.T) {
	t.Parallel()
	before := []v1alpha1.NamespaceReservation{{Name: "a", UID: "1", Since: "5"}, {Name: "b", UID: "2"}}
	require.Equal(t, []v1alpha1.NamespaceReservation{{Name: "b", UID: "2"}, {Name: "a", UID: "1", Since: "7"}},
		quota.WithReservation(before, v1alpha1.NamespaceReservation{Name: "a", UID: "1", Since: "7"}))
	require.Len(t, quota.WithReservation(before, v1alpha1.NamespaceReservation{Name: "a", UID: "3"}), 3,
		"of two namespaces of a name, one can be created after the other is deleted")
	require.Len(t, before, 2)
}

func TestResourceQuotasDoNotCountNamespaces(t *testing.T) {
	t.Parallel()
	both := space(list("count/namespaces", "3", "pods", "5"), nil)
	require.Equal(t, list("pods", "5"), quota.Objects(both))
	require.Len(t, quota.Hard(both), 2)
	require.Len(t, quota.Counted([]*v1alpha1.PolicySpace{both, limitingSpace("3", nil)}), 1)
	require.Nil(t, quota.Objects(space(nil, nil)))

	both.Status.Hard, both.Status.Used = list("count/namespaces", "3"), list("count/namespaces", "2")
	status, _ := quota.Settle(both, []string{"a"}, map[string]quota.Usage{"a": {Unknown: true}})
	require.Equal(t, list("count/namespaces", "3"), status.Hard)
	require.Equal(t, "count/namespaces: 2/3, pods: 0/5", status.Quota)
	require.Equal(t, []string{"a"}, status.Uncounted)
	only := limitingSpace("3", nil)
	status, _ = quota.Settle(only, []string{"a"}, map[string]quota.Usage{"a": {Unknown: true}})
	require.Empty(t, status.Uncounted, "nothing is counted in its namespaces")
	require.Empty(t, status.Hard, "Settle does not enforce the limit")
	require.Equal(t, "count/namespaces: 4/3", quota.WithNamespaces(only, status, 4).Quota)
	require.Empty(t, quota.WithNamespaces(space(list("pods", "5"), nil), status, 4).Used[quota.Namespaces])
}

func TestUnreachableLimitsOnNamespaces(t *testing.T) {
	t.Parallel()
	parent := limitingSpace("3", &v1alpha1.NamespacesPerCreator{Hard: 1})
	parent.Name = "parent"
	child := limitingSpace("5", &v1alpha1.NamespacesPerCreator{Hard: 2})
	require.Equal(t, []string{
		"policyspace s limits count/namespaces to 5, but usage reaches the limit 3 of its ancestor parent first",
		"policyspace s limits the namespaces per creator to 2, but its ancestor parent allows only 1",
	}, quota.Unreachable([]*v1alpha1.PolicySpace{child, parent}))
	require.Empty(t, quota.Unreachable([]*v1alpha1.PolicySpace{parent, child}))
}
