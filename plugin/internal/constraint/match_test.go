package constraint

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// The flags of the operator decide which namespaces are exempt, and whose permission counts unless the command says it.
func TestFlagsOfTheOperator(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.WebhookName},
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{
		Args: []string{"--scc-match=intersection", "--scc-exempt-namespaces=cni"},
	}}
	for name, test := range map[string]struct {
		match          string
		isForbidden    bool
		isIntersection bool
		exempt         []string
		note           string
	}{
		"by the operator": {"", false, true, []string{"kube-system", "nstpl-system", "cni"}, ""},
		"by the command":  {matchUnion, false, false, []string{"kube-system", "nstpl-system", "cni"}, ""},
		"the Deployment is unread": {"", true, false, []string{"kube-system", "nstpl-system"},
			"you may not read the operator's Deployment, so --scc-match=union and no --scc-exempt-namespaces are assumed: " +
				"specify --scc-match\n"},
		"the Deployment is unread, by the command": {matchIntersection, true, true, []string{"kube-system", "nstpl-system"},
			"you may not read the operator's Deployment, so no --scc-exempt-namespaces is assumed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewSimpleDynamicClient(scheme.Scheme, deployment)
			if test.isForbidden {
				client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", nil)
				})
			}
			var notes bytes.Buffer
			o := &review{match: test.match}
			o.Session = cli.NewSession(genericiooptions.IOStreams{ErrOut: &notes})
			e := &environment{reader: &cluster.Cluster{Dynamic: client}}
			require.NoError(t, o.readFlags(t.Context(), e))
			require.Equal(t, test.isIntersection, e.isIntersection)
			require.Equal(t, test.exempt, e.exempt)
			require.Equal(t, test.note, notes.String())
		})
	}
}
