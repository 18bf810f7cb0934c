package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/operator"
)

// newService has the operators that start from now on in a world be asked through a service, whose certificate is
// theirs.
func newService(t *testing.T, w *world) *operator.Service {
	t.Helper()
	w.behindService = true
	service, err := operator.NewService(t.Context(), w.client, w.webhookAddress)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	return service
}
