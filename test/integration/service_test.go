package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/operator"
)

// newService has the operators that start from now on in a world be asked through a service, whose certificate is
// theirs.
func newService(t *testing.T, cluster *testCluster) *operator.Service {
	t.Helper()
	cluster.behindService = true
	service, err := operator.NewService(t.Context(), cluster.client, cluster.webhookAddress)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	return service
}
