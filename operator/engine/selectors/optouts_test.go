package selectors

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptOuts(t *testing.T) {
	t.Parallel()
	lists := OptOutsOf(map[string]string{
		"users": "\n  system:serviceaccount:ci:builder \r\nrobot\nrobot", "groups": "robots\n\n", "any": "x",
	})
	require.Equal(t, OptOuts{"users": "\nrobot\nsystem:serviceaccount:ci:builder\n", "groups": "\nrobots\n"}, lists)
	require.Equal(t, lists, OptOutsOf(lists), "the copy has the same lists")
	require.Empty(t, Parse(lists), "lists are not parsed as rules")
	for _, test := range []struct {
		user   string
		groups []string
		want   bool
	}{
		{"robot", nil, true},
		{"system:serviceaccount:ci:builder", nil, true},
		{"rob", nil, false},
		{"robots", nil, false},
		{"", []string{""}, false},
		{"robot\nsystem:serviceaccount:ci:builder", nil, false},
		{"jane", []string{"dev", "robots"}, true},
		{"jane", []string{"robot"}, false},
	} {
		require.Equal(t, test.want, lists.Has(test.user, test.groups), "%q %q", test.user, test.groups)
	}
	require.False(t, OptOutsOf(nil).Has("", []string{""}))
}

func TestOptOutsThatDoNotFitAreReported(t *testing.T) {
	t.Parallel()
	require.NoError(t, OptOutsOf(map[string]string{"users": strings.Repeat("x", maxOptOuts-2)}).Check())
	require.EqualError(t, OptOutsOf(map[string]string{"users": strings.Repeat("x", maxOptOuts)}).Check(),
		"the users and groups in ConfigMap nstpl-auto-opt-out take 100 KiB: "+
			"list at most 100 KiB, for example groups instead of users")
}
