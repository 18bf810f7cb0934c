package policyspace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestLimitedResources(t *testing.T) {
	t.Parallel()
	spaces := []v1alpha1.PolicySpace{
		{}, *countedSpace(resourceList("cpu", "1", "pods", "2", "services", "1"), nil),
		*countedSpace(resourceList("count/jobs.batch", "1", "pods", "3"), nil),
		*countedSpace(resourceList("count/", "1", "count/.batch", "1", "count/*", "1", "*", "1"), nil), // never valid
	}
	require.Equal(t,
		[]schema.GroupResource{{Group: "batch", Resource: "jobs"}, {Resource: "pods"}, {Resource: "services"}},
		limitedResources(spaces))
	require.Empty(t, limitedResources(nil))
}

// oneSpace is a client of an API server with the policy space s.
type oneSpace struct {
	noObjects
	space *v1alpha1.PolicySpace
}

func (o oneSpace) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if key.Name != o.space.Name {
		return o.noObjects.Get(ctx, key, into, opts...)
	}
	o.space.DeepCopyInto(into.(*v1alpha1.PolicySpace))
	return nil
}

// The API server charges nothing for a dry run, so no other webhook knows what it would use.
func TestADryRunIsCheckedByAllThatItWouldUse(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	pod := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "2"}}},
	}}}}
	spaceOf := func(pairs ...string) oneSpace {
		return oneSpace{space: countedSpace(resourceList(pairs...), resourceList("pods", "1", "requests.cpu", "1"))}
	}
	for name, test := range map[string]struct {
		cached, live oneSpace
		want         string
	}{
		"room":            {spaceOf("pods", "2", "requests.cpu", "3"), spaceOf(), ""},
		"no room":         {spaceOf("requests.cpu", "2"), spaceOf("requests.cpu", "2"), "requested: requests.cpu=3, limit: "},
		"no room for it":  {spaceOf("pods", "1", "cpu", "9"), spaceOf("pods", "1", "cpu", "9"), "requested: pods=2, limit: "},
		"a late cache":    {spaceOf("requests.cpu", "2"), spaceOf("requests.cpu", "3"), ""},
		"another's limit": {spaceOf("services", "0"), spaceOf(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Sequencer{quota: &QuotaAdmission{cached: test.cached, live: test.live}}
			err := s.checkDryRun(t.Context(), []string{"deleted", "s"}, pods, pod)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
