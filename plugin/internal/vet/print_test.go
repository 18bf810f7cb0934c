package vet

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// A note about one more finding would take as much room as the finding.
func TestASingleMoreFindingIsPrinted(t *testing.T) {
	t.Parallel()
	for total, want := range map[int]string{
		maxFindings: "", maxFindings + 1: "", maxFindings + 2: "2 more warnings: -o json has all\n",
	} {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		v := &vet{Session: cli.NewSession(streams)}
		shown := v.first(make([]finding, total), "warnings")
		require.Equal(t, want, errOut.String())
		require.Equal(t, want == "", len(shown) == total)
	}
}
