package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestEvery(t *testing.T) {
	t.Parallel()
	require.Equal(t, []admissionregistrationv1.MatchCondition{{Name: "both", Expression: "(x || y) && (z)"}},
		Every("both", "x || y", "z"))
}
