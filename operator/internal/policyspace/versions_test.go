package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNewerSpace(t *testing.T) {
	t.Parallel()
	state := func(uid types.UID, version string) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	last, cached := state("a", "7"), state("a", "5")
	require.Same(t, last, newerSpace(last, cached))
	require.Same(t, cached, newerSpace(cached, cached))
	require.Same(t, last, newerSpace(cached, last))
	require.Same(t, cached, newerSpace(nil, cached))
	require.Nil(t, newerSpace(last, nil), "it was deleted")
	again := state("b", "5")
	require.Same(t, again, newerSpace(last, again), "it was deleted and created again")
}

func TestNewerVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want string }{
		{"5", "7", "7"}, {"7", "5", "7"}, {"9", "10", "10"}, {"", "5", "5"}, {"5", "", "5"}, {"", "", ""},
	} {
		require.Equal(t, test.want, newerVersion(test.a, test.b), test)
	}
}
