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
