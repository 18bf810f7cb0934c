package cli_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// A flag that ForContext forgot would make commands ignore what the user said, for example --as.
func TestForContextKeepsAllOtherFlags(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	copied := session.ForContext("other")
	require.Equal(t, "other", *copied.Config.Context)
	require.Empty(t, *session.Config.Context)
	before, after := reflect.ValueOf(session.Config).Elem(), reflect.ValueOf(copied.Config).Elem()
	for i := range before.NumField() {
		field := before.Type().Field(i)
		if field.Name != "Context" && field.IsExported() {
			require.Equal(t, before.Field(i).Pointer(), after.Field(i).Pointer(), field.Name)
		}
	}
}

// Users run what a note proposes in their current context, which may be that of another cluster.
func TestNotesProposeCommandsInTheirContext(t *testing.T) {
	streams, _, _, notes := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	session.ForContext("production").Note("it is old: run '%s'", "kubectl nstpl check")
	require.Equal(t, "context \"production\": it is old: run 'kubectl nstpl check --context production'\n", notes.String())
	notes.Reset()
	session.Note("run 'kubectl nstpl check'")
	require.Equal(t, "run 'kubectl nstpl check'\n", notes.String())
	notes.Reset()
	*session.Config.Context = "production"
	session.Note("run 'kubectl nstpl check'")
	require.Equal(t, "run 'kubectl nstpl check --context production'\n", notes.String())
}
