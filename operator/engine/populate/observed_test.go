package populate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A proxy may answer 429 to a write that was carried out. client-go repeats it, and the repetition is a conflict with
// what it has written itself.
func TestAConflictOfARepeatedWriteIsNoAnswer(t *testing.T) {
	t.Parallel()
	declared := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	observed := applied(t, declared)
	observed.ResourceVersion = "7"
	current := observed.DeepCopy()
	current.ResourceVersion, current.Annotations[v1alpha1.HashAnnotation] = "8", "later"
	current.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	for name, test := range map[string]struct {
		answers      []int
		isUnanswered bool
	}{
		"one request":            {[]int{http.StatusConflict}, false},
		"429, and a conflict":    {[]int{http.StatusTooManyRequests, http.StatusConflict}, true},
		"500, and a conflict":    {[]int{http.StatusInternalServerError, http.StatusConflict}, true},
		"429 twice, and refused": {[]int{http.StatusTooManyRequests, http.StatusTooManyRequests, http.StatusForbidden}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := slices.Clone(test.answers)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadataList{
						TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
						Items:    []metav1.PartialObjectMetadata{*current},
					})
					return
				}
				code := answers[0]
				answers = answers[1:]
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(code)
				_ = json.NewEncoder(w).Encode(metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
					Status:   metav1.StatusFailure, Code: int32(code), Reason: reasonOf[code],
				})
			}))
			t.Cleanup(server.Close)
			client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
			_, err = patchObserved(t.Context(), configMaps.Namespace("team-a"), observed, map[string]any{})
			require.Error(t, err)
			require.Empty(t, answers)
			require.Equal(t, test.isUnanswered, unanswered(err), "%v", err)
		})
	}
}

var reasonOf = map[int]metav1.StatusReason{
	http.StatusConflict: metav1.StatusReasonConflict, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}
