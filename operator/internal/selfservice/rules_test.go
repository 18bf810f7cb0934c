package selfservice

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

func TestRulesNotifyOfTheFirstAndTheLast(t *testing.T) {
	t.Parallel()
	space := func(name string, rules *v1alpha1.SelfService) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{SelfService: rules},
		}
	}
	some := &v1alpha1.SelfService{NamePattern: "*"}
	r := &rules{spaces: map[string]bool{}}
	events := watch.ChangeHandler(r.update)
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
		if step.exists {
			events.OnAdd(step.object, false)
		} else {
			events.OnDelete(step.object)
		}
		require.Equal(t, step.any, r.any())
		require.Equal(t, step.notified, notified)
	}
}

// unreadable is a client.Reader that a test must not use.
type unreadable struct{ client.Reader }

// The API server sends many namespaces for the sake of other plugins. Without rules, nothing is read for those.
func TestRequestsForOtherPluginsReadNothing(t *testing.T) {
	t.Parallel()
	ns := &unstructured.Unstructured{}
	ns.SetName("team-a")
	ns.SetLabels(map[string]string{v1alpha1.PolicySpaceLabel: "corp"})
	a := &Admission{rules: &rules{spaces: map[string]bool{}}, live: unreadable{}}
	require.NoError(t, a.Validate(t.Context(), &webhook.Request{Object: ns}))
	own := &webhook.Request{Object: ns, Revision: webhook.OwnWebhook}
	require.Panics(t, func() { _ = a.Validate(t.Context(), own) })
	a.rules.spaces["corp"] = true // what the rules deny reserves nothing in the call for another plugin
	require.Panics(t, func() { _ = a.Validate(t.Context(), &webhook.Request{Object: ns}) })
}
