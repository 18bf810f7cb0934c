package selfservice

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestRulesNotifyOfTheFirstAndTheLast(t *testing.T) {
	t.Parallel()
	space := func(name string, rules *v1alpha1.SelfService) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{SelfService: rules},
		}
	}
	some := &v1alpha1.SelfService{NamePattern: "*"}
	isListed := false
	r := &rules{spaces: map[string]bool{}, isListed: func() bool { return isListed }}
	notified := -1 // Listen calls the function once
	r.changes.Listen(func() { notified++ })
	for _, step := range []struct {
		object   any
		exists   bool
		any      bool
		notified int
	}{
		{space("without", nil), true, false, 0},
		{space("a", some), true, true, 1},
		{space("a", some), true, true, 1},
		{space("b", some), true, true, 1},
		{space("a", nil), true, true, 1},
		{toolscache.DeletedFinalStateUnknown{Obj: space("b", some)}, false, false, 2},
		{"unknown", false, false, 2},
	} {
		r.update(step.object, step.exists)
		require.Equal(t, step.any, r.any())
		require.False(t, r.isEmpty(), "until the first list is complete")
		isListed = true
		require.Equal(t, !step.any, r.isEmpty())
		isListed = false
		require.Equal(t, step.notified, notified)
	}
}
