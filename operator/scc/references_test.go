package scc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// objects are the UIDs of what exists: namespaces, and namespace/account.
type objects map[string]types.UID

func (o objects) identity(reference scc.Reference) (scc.Identity, error) {
	identity := scc.Identity{Namespace: o[reference.Namespace]}
	if reference.Account != "" {
		identity.Account = o[reference.Namespace+"/"+reference.Account]
	}
	return identity, nil
}

func TestRemoveStaleReferences(t *testing.T) {
	t.Parallel()
	const (
		builder, group = "system:serviceaccount:a:builder", "system:serviceaccounts:a"
		there          = "jane system:authenticated system:serviceaccount:a system:serviceaccount::x system:serviceaccount:a:b:c system:serviceaccounts:"
	)
	for name, test := range map[string]struct {
		steps   []objects
		removed string
	}{
		"still there": {
			[]objects{{"a": "1", "a/builder": "2"}, {"a": "1", "a/builder": "2"}}, "",
		},
		"listed before they exist": {[]objects{{}, {}, {"a": "1"}, {"a": "1", "a/builder": "2"}}, ""},
		"the account is deleted":   {[]objects{{"a": "1", "a/builder": "2"}, {"a": "1"}}, builder},
		"the account is deleted at once": {
			[]objects{{"a": "1"}, {"a": "1", "a/builder": "2"}, {"a": "1"}}, builder,
		},
		"the account is another": {
			[]objects{{"a": "1", "a/builder": "2"}, {"a": "1", "a/builder": "3"}}, builder,
		},
		"the namespace is deleted": {[]objects{{"a": "1", "a/builder": "2"}, {}}, builder + " " + group},
		"the namespace is another": {
			[]objects{{"a": "1", "a/builder": "2"}, {"a": "3", "a/builder": "4"}}, builder + " " + group,
		},
		"the namespace, before the account was": {
			[]objects{{"a": "1"}, {"a": "3", "a/builder": "4"}}, builder + " " + group,
		},
		"what was never there": {[]objects{{}, {}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1alpha1.SecurityContextConstraints{
				Users:  append(strings.Fields(there), builder, builder),
				Groups: append(strings.Fields(there), group, builder),
			}
			c.UID = "0"
			var removed []string
			for _, step := range test.steps {
				before := c.DeepCopy()
				changed, stale, err := scc.RemoveStale(c, step.identity)
				require.NoError(t, err)
				require.Equal(t, before, c, "the constraint that was given is left alone")
				for _, reference := range stale {
					if !slices.Contains(removed, reference.String()) {
						removed = append(removed, reference.String())
					}
				}
				c = changed
				again, _, err := scc.RemoveStale(c, step.identity)
				require.NoError(t, err)
				require.Same(t, c, again, "a second call changes nothing")
			}
			require.Equal(t, test.removed, strings.Join(removed, " "))
			for _, gone := range removed {
				require.NotContains(t, slices.Concat(c.Users, c.Groups[:len(c.Groups)-1]), gone)
			}
			require.Subset(t, c.Users, strings.Fields(there))
			require.Subset(t, c.Groups, strings.Fields(there+" "+builder), "the name of a user is not a group")
		})
	}
}

// What was seen of a constraint says nothing about a copy of it, and nothing is decided by what can't be read.
func TestRecordOfReferencesIsBoundToTheConstraint(t *testing.T) {
	t.Parallel()
	c := &v1alpha1.SecurityContextConstraints{Users: []string{"system:serviceaccount:a:b"}}
	c.UID = "0"
	reference := scc.Reference{Namespace: "a", Account: "b"}
	_, found := scc.RecordedIdentity(c, reference)
	require.False(t, found)
	unseen, _, err := scc.RemoveStale(c, objects{}.identity)
	require.NoError(t, err)
	require.Same(t, c, unseen, "what does not exist yet is not recorded")
	c, _, err = scc.RemoveStale(c, objects{"a": "1", "a/b": "2"}.identity)
	require.NoError(t, err)
	seen, found := scc.RecordedIdentity(c, reference)
	require.True(t, found)
	require.Equal(t, scc.Identity{Namespace: "1", Account: "2"}, seen)

	_, _, err = scc.RemoveStale(c, func(scc.Reference) (scc.Identity, error) {
		return scc.Identity{}, errors.New("unavailable")
	})
	require.ErrorContains(t, err, "unavailable")
	for _, change := range []func(*v1alpha1.SecurityContextConstraints){
		func(c *v1alpha1.SecurityContextConstraints) { c.UID = "another" },
		func(c *v1alpha1.SecurityContextConstraints) { c.Annotations[v1alpha1.ReferencesAnnotation] = "{" },
	} {
		other := c.DeepCopy()
		change(other)
		_, found = scc.RecordedIdentity(other, reference)
		require.False(t, found)
		changed, stale, err := scc.RemoveStale(other, objects{"a": "8", "a/b": "9"}.identity)
		require.NoError(t, err)
		require.Empty(t, stale)
		require.Equal(t, c.Users, changed.Users)
	}
	c.Users = nil
	c, _, err = scc.RemoveStale(c, objects{}.identity)
	require.NoError(t, err)
	require.NotContains(t, c.Annotations, v1alpha1.ReferencesAnnotation)
}
