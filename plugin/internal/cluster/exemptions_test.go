package cluster_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Callers take what is forbidden for lasting. What another namespace does not answer may be read later.
func TestUnreadExemptionsAreForbiddenOnlyInAllNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		reasons     map[string]metav1.StatusReason
		isForbidden bool
	}{
		"the first":  {map[string]metav1.StatusReason{"a": metav1.StatusReasonForbidden, "b": "Timeout"}, false},
		"the second": {map[string]metav1.StatusReason{"b": metav1.StatusReasonForbidden, "a": "Timeout"}, false},
		"both": {
			map[string]metav1.StatusReason{"a": metav1.StatusReasonForbidden, "b": metav1.StatusReasonForbidden}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, func(w http.ResponseWriter, request *http.Request) {
				_, path, _ := strings.Cut(request.URL.Path, "/namespaces/")
				namespace, _, _ := strings.Cut(path, "/")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":403}`,
					test.reasons[namespace])
			})
			namespaces := []*corev1.Namespace{{}, {}}
			namespaces[0].Name, namespaces[1].Name = "a", "b"
			_, err := c.Exemptions(t.Context(), namespaces)
			require.Error(t, err)
			require.Equal(t, test.isForbidden, apierrors.IsForbidden(err))
		})
	}
}
