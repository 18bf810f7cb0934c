package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// The lease of an earlier operator remains, and tells nothing about one that runs with --leader-elect=false.
func TestAReleasedLeaseIsReportedAsNone(t *testing.T) {
	t.Parallel()
	const old = "states may be old"
	none := NoOperator(cluster.Leader{}, apierrors.NewNotFound(schema.GroupResource{}, "x"), old)
	require.Contains(t, none, "so unless one runs with --leader-elect=false, states may be old")
	require.Equal(t, none, NoOperator(cluster.Leader{}, nil, old))
	require.Empty(t, NoOperator(cluster.Leader{Running: true}, nil, old))
	require.Empty(t, NoOperator(cluster.Leader{}, apierrors.NewForbidden(schema.GroupResource{}, "x", nil), old))
}
