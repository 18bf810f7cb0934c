package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsHeld(t *testing.T) {
	now := time.Now()
	renewed := func(ago time.Duration, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
			RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
		}}
	}
	tests := map[string]struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		"renewed in time": {renewed(14*time.Second, "one"), true},
		"not renewed":     {renewed(16*time.Second, "one"), false},
		"released":        {renewed(time.Second, ""), false},
		"never held":      {&coordinationv1.Lease{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, isHeld := HolderOf(test.lease, now)
			require.Equal(t, test.want, isHeld)
		})
	}
}
