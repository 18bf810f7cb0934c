package marks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAtLeast(t *testing.T) {
	for _, test := range []struct {
		version, minimum string
		want             bool
	}{
		{"1.36.3", "1.36", true}, {"1.36.0", "1.36", true}, {"v1.37.2", "1.36", true}, {"1.35.9", "1.36", false},
		{"1.36.3", "1.36.3", true}, {"1.36.2", "1.36.3", false}, {"1.9.9", "1.36", false}, {"2.0.0", "1.36", true},
		{"1.36", "1.36.1", false}, {"1.34.4", "0.0", true},
	} {
		require.Equal(t, test.want, atLeast(test.version, test.minimum), "%s %s", test.version, test.minimum)
	}
}

func TestSelects(t *testing.T) {
	for _, test := range []struct {
		mark Mark
		want map[string]bool
	}{
		{Mark{}, map[string]bool{"quick": true, "race": true}},
		{Mark{Since: "0.0"}, map[string]bool{"quick": true, "race": true, "1.35.4": true, "1.37.2": true}},
		{Mark{Since: "1.36"}, map[string]bool{"quick": true, "race": true, "1.37.2": true}},
		{Mark{Thorough: true}, map[string]bool{"thorough": true}},
		{Mark{Node: true}, map[string]bool{"node": true}},
		{Mark{InBrowser: true, Thorough: true}, map[string]bool{"browser": true}},
	} {
		for _, run := range []string{"quick", "race", "thorough", "node", "browser", "1.35.4", "1.37.2"} {
			selected, err := test.mark.Selects(run)
			require.NoError(t, err)
			require.Equal(t, test.want[run], selected, "%v %s", test.mark, run)
		}
	}
	_, err := Mark{}.Selects("slow")
	require.ErrorContains(t, err, "is not a run")
}
