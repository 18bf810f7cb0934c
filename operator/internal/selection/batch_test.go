package selection

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/test/controlplane"
)

func TestAdditionsOfConcurrentRequestsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	updates := &countingUpdates{}
	config := rest.CopyConfig(controlplane.New(t).RESTConfig())
	config.Wrap(transport.WrapperFunc(func(next http.RoundTripper) http.RoundTripper {
		updates.next = next
		return updates
	}))
	configMaps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SelectorsConfigMap},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	const requests = 30
	a := NewAdmission(Options{ConfigMaps: configMaps})
	var additions []addition
	for i := range requests {
		additions = append(additions, addition{Kind: "namespacetemplates", Name: fmt.Sprint("t", i),
			Rules: []selectors.Rule{selectors.Rule(fmt.Sprintf("t: a=%d", i))}, Time: metav1.Now()})
	}
	refused, err := a.write(t.Context(), additions)
	require.NoError(t, err)
	require.Equal(t, make([]error, requests), refused)
	require.EqualValues(t, 1, updates.count.Load())
	stored, err := configMaps.Get(t.Context(), v1alpha1.SelectorsConfigMap, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, read(stored).pending, requests)
	require.Len(t, read(stored).rules, requests)

	require.NoError(t, a.batches.Do(t.Context(), addition{Name: "later", Time: metav1.Now()}))
	require.EqualValues(t, 2, updates.count.Load())
}

// countingUpdates counts the updates that a client sends, without dry runs.
type countingUpdates struct {
	next  http.RoundTripper
	count atomic.Int32
}

func (c *countingUpdates) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPut && !request.URL.Query().Has("dryRun") {
		c.count.Add(1)
	}
	return c.next.RoundTrip(request)
}

// An addition that is too large for the ConfigMap is refused, and the others of its batch are not.
func TestAdditionsThatFitAreWrittenWithoutThoseThatDoNot(t *testing.T) {
	t.Parallel()
	sized := func(name string, size int) addition {
		return addition{
			Name: name, Rules: []selectors.Rule{selectors.Rule("g:" + name + " " + strings.Repeat("x", size))},
		}
	}
	before := record{rules: setOf("g:before a=b"), pending: []addition{sized("pending", 1)}}
	after, errs := before.with([]addition{sized("a", 1), sized("large", 1<<20), sized("b", 1)})
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "take more than")
	require.NoError(t, errs[2])
	var names []string
	for _, a := range after.pending {
		names = append(names, a.Name)
	}
	require.Equal(t, []string{"pending", "a", "b"}, names)
	require.Equal(t, setOf("g:before a=b"), before.rules, "refused rules are not in force")
}
