package survey

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestNotesOnSourcesWhoseChangesWait(t *testing.T) {
	t.Parallel()
	ref := render.SourceRef{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "vault", Name: "ca",
	}
	template := func(name, message string, labels map[string]string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Sources = []v1alpha1.Source{{
			APIVersion: "v1", Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
		}}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: labels}
		template.Status.Conditions = []metav1.Condition{{Type: v1alpha1.TemplatePopulated, Message: message}}
		return template
	}
	delay := populate.DelayedSources(1, ref, time.Unix(9, 0))
	const populated = "1 of 1 namespaces are populated"
	copiesNothing := template("copies-nothing", populated+"; "+delay, nil) // a file, with the status of the stored template
	copiesNothing.Spec.Sources = nil
	index := match.NewIndex(
		copiesNothing, template("waits", populated+"; "+delay, nil), template("settled", populated, nil),
		template("elsewhere", populated+"; "+delay, map[string]string{"a": "b"}),
	)
	namespaces := []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	require.Equal(t, []string{"template waits: " + delay}, Delays(index, namespaces, ""))
	require.Equal(t, []string{"template waits: " + delay}, Delays(index, namespaces, "waits"))
	require.Empty(t, Delays(index, namespaces, "settled"))
}
