package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// People copy the commands of an answer. Programs get them without the flags of the caller.
func TestAnswersForPeopleSelectTheCluster(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &why{Session: cli.NewSession(streams)}
	*o.Config.Context = "test"
	explained := answer{Summary: "denied", Facts: []fact{{labelMessage, "run 'kubectl nstpl check'"}}}
	require.NoError(t, o.write(nil, explained))
	require.Equal(t, "denied\n  Message:  run 'kubectl nstpl check --context test'\n", out.String())
	out.Reset()
	o.output.Format = cli.FormatJSON
	require.NoError(t, o.write(nil, explained))
	require.Contains(t, out.String(), `"text": "run 'kubectl nstpl check'"`)
}
