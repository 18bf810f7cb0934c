package populate

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/test/controlplane"
)

// beforePatches calls a function with the number of each patch before it is sent.
type beforePatches struct {
	http.RoundTripper
	patches int
	call    func(number int)
}

func (b *beforePatches) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch {
		b.call(b.patches)
		b.patches++
	}
	return b.RoundTripper.RoundTrip(request)
}

// wrap returns a configuration whose requests pass through b.
func (b *beforePatches) wrap(config *rest.Config) *rest.Config {
	wrapped := rest.CopyConfig(config)
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper {
		b.RoundTripper = next
		return b
	})
	return wrapped
}

// Users who change an open namespace all the time do not keep its metadata from being written, but nothing that another
// leader recorded meanwhile is undone. A namespace that is initializing is written only as it was read, since what it
// has decides when it opens.
func TestMetadataOfAChangedNamespace(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	template := setsTier("t", "gold")
	template.Spec.NamespaceMetadata.Labels["new"] = "x"
	record := MetadataRecord{tierKey: recorded("t", "silver"), {Field: render.Labels, Key: "old"}: recorded("t", "x")}
	label := func(key, value string) string { return fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, key, value) }
	annotation := func(key string) string { return fmt.Sprintf(`{"metadata": {"annotations": {%q: "x"}}}`, key) }
	const (
		removed = `{"metadata": {"labels": {"tier": null, "old": null}, "annotations": {"` +
			v1alpha1.NamespaceMetadataAnnotation + `": null}}}`
		reported = `{"status": {"conditions": [{"type": "` + string(v1alpha1.NamespacePopulated) +
			`", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
		theirs = `{"status": {"conditions": [{"type": "theirs", "status": "True"}]}}`
	)
	for i, test := range []struct {
		name           string
		isInitializing bool
		// first is what another client does before the first write, second what it does before the second one.
		first, second string
		// writes is how many writes there are. If want is empty, the last one fails.
		writes int
		want   map[string]string
	}{
		{"nothing", false, "", "", 1, map[string]string{"tier": "gold", "new": "x"}},
		{"another label", false, label("own", `"1"`), label("own", `"2"`), 2, map[string]string{
			"tier": "gold", "new": "x", "own": "2",
		}},
		{"a label that is set", false, label("tier", `"1"`), label("tier", `"2"`), 2, map[string]string{
			"tier": "gold", "new": "x",
		}},
		{"a label that is set, which is missing", false, label("tier", "null"), label("tier", `"2"`), 2, map[string]string{
			"tier": "gold", "new": "x",
		}},
		{"a label that is added", false, label("new", `"1"`), label("new", `"2"`), 2, map[string]string{
			"tier": "gold", "new": "x",
		}},
		{"a label that is removed", false, label("old", `"1"`), label("old", `"2"`), 2, map[string]string{
			"tier": "gold", "new": "x", "old": "2",
		}},
		{"a label that did not exist", false, annotation("own"), label("new", `"1"`), 2, nil},
		{"a label that is to be removed", false, annotation("own"), label("old", `"1"`), 2, nil},
		{"another leader's record", false, removed, "", 1, nil},
		{"another leader's record, later", false, annotation("own"), removed, 2, nil},
		{"another leader's objects", false, annotation(v1alpha1.ExistingAnnotation), "", 1, nil},
		{"another leader's objects, later", false, annotation("own"), annotation(v1alpha1.ExistingAnnotation), 2, nil},
		{"another leader's report, later", false, annotation("own"), reported, 2, nil},
		{"a user's conditions, nothing is added", false, annotation("own"), theirs, 2, map[string]string{
			"tier": "gold", "new": "x",
		}},
		{"a user's conditions, a label is added", false, annotation("own"), theirs, 2, nil},
		{"initializing, another label", true, label("own", `"1"`), "", 1, nil},
		{"initializing, user IDs", true, annotation(v1alpha1.UIDRangeAnnotation), "", 2, map[string]string{
			"tier": "gold", "new": "x", v1alpha1.InitializingLabel: "",
		}},
		{"initializing, later", true, annotation(v1alpha1.UIDRangeAnnotation), label("own", `"2"`), 2, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns, record := namespaceWith("silver", RecordedValue{}), record
			ns.Name, ns.UID, ns.Labels["old"] = fmt.Sprint("n-", i), "", "x"
			if strings.HasSuffix(test.name, "nothing is added") {
				ns.Labels["new"], record = "x", maps.Clone(record)
				record[render.MetadataKey{Field: render.Labels, Key: "new"}] = recorded("t", "x")
			}
			if test.isInitializing {
				ns.Labels[v1alpha1.InitializingLabel] = ""
			}
			ns.Annotations[v1alpha1.NamespaceMetadataAnnotation] = record.String()
			ns, err := api.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
			require.NoError(t, err)
			before := &beforePatches{call: func(number int) {
				if body := []string{test.first, test.second}[number]; body != "" {
					_, err := api.CoreV1().Namespaces().Patch(t.Context(), ns.Name, types.MergePatchType, []byte(body),
						metav1.PatchOptions{},
						map[bool][]string{true: {"status"}}[strings.HasPrefix(body, `{"status"`)]...)
					require.NoError(t, err)
				}
			}}
			config := before.wrap(cluster.RESTConfig())
			client, err := metadata.NewForConfig(config)
			require.NoError(t, err)
			plan := NewPlan(Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{template}, Inputs{}),
				match.NewIndex(template), Observed{})
			outcome := NewApplier(client, nil, nil, 1, nil).ApplyMetadata(t.Context(), plan)
			require.Equal(t, test.writes, before.patches)
			stored, err := api.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
			require.NoError(t, err)
			if test.want == nil {
				require.NotNil(t, outcome.Failure, stored.Labels)
				require.Equal(t, metav1.StatusReasonConflict, outcome.Failure.Reason, "%v", outcome.Failure)
				require.NotEqual(t, "gold", stored.Labels["tier"])
				return
			}
			require.Nil(t, outcome.Failure, "%v", outcome.Failure)
			test.want[corev1.LabelMetadataName] = ns.Name
			require.Equal(t, test.want, stored.Labels)
			require.Equal(t, stored.ResourceVersion, outcome.Written.ResourceVersion)
			kept := RecordedMetadata(stored.Annotations)
			require.True(t, kept[tierKey].IsIn("gold"))
		})
	}
}
