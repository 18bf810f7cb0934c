package populate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestReportedDelay(t *testing.T) {
	t.Parallel()
	ref := render.SourceRef{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "vault", Name: "ca",
	}
	for _, want := range []string{"", DelayedSources(1, ref, time.Unix(9, 0)), DelayedSources(2, ref, time.Unix(9, 0))} {
		template := &v1alpha1.NamespaceTemplate{}
		require.Empty(t, ReportedDelay(template))
		message := "2 of 2 namespaces are populated; configmap/x: declared by templates a and b"
		if want != "" {
			message += "; " + want
		}
		template.Status.Conditions = []metav1.Condition{{Type: v1alpha1.TemplatePopulated, Message: message}}
		require.Equal(t, want, ReportedDelay(template))
	}
}
