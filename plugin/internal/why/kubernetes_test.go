package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A template or a tree would set the label of Pod Security again.
func TestWhoChangesThePodSecurityStandard(t *testing.T) {
	t.Parallel()
	record := `{"labels": {"pod-security.kubernetes.io/enforce": {"template": "baseline"}}}`
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"nothing of nstpl": {nil, nil, "change the label pod-security.kubernetes.io/enforce of the namespace."},
		"a template": {
			nil, map[string]string{v1alpha1.NamespaceMetadataAnnotation: record},
			"change the label pod-security.kubernetes.io/enforce of the namespace. Template baseline has set it: if the " +
				"template still declares it, change its namespaceMetadata instead, or first exempt the namespace with " +
				"'kubectl nstpl exempt n --template baseline --object namespace/n --reason TEXT --for 3d'.",
		},
		"a tree": {
			map[string]string{v1alpha1.TreeLabel: "corp"}, nil,
			"change the label pod-security.kubernetes.io/enforce of the namespace: in the files of the tree corp, if they set it.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: test.labels, Annotations: test.annotations,
			}}
			require.Equal(t, test.want, changeEnforced(ns))
		})
	}
}
