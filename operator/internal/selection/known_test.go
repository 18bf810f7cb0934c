package selection

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// notKnown is the API server's answer until its policies know the version.
var notKnown = &apierrors.StatusError{ErrStatus: metav1.Status{
	Reason: metav1.StatusReasonInvalid,
	Message: "configmaps nstpl-selectors is forbidden: ValidatingAdmissionPolicy 'nstpl-selectors-known' with binding " +
		"'nstpl-selectors-known' denied request: the policies know resourceVersion 6",
}}

// ask returns the result of awaitKnown for an API server that gives these answers, and the number of questions.
func ask(ctx context.Context, t *testing.T, answers ...error) (asked int, err error) {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update := action.(clienttesting.UpdateActionImpl)
		require.Equal(t, []string{metav1.DryRunAll}, update.UpdateOptions.DryRun)
		question := update.GetObject().(*corev1.ConfigMap)
		require.Equal(t, map[string]string{"resourceVersion": "7"}, question.Data)
		answer := answers[min(asked, len(answers)-1)]
		asked++
		return true, question, answer
	})
	a := NewAdmission(Options{ConfigMaps: client.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace)})
	return asked, a.awaitKnown(ctx, "7")
}

func TestAnAdditionIsKnownOnceThePoliciesUseIt(t *testing.T) {
	asked, err := ask(t.Context(), t, notKnown, notKnown, nil)
	require.NoError(t, err)
	require.Equal(t, 3, asked)
	asked, err = ask(t.Context(), t, errors.New("broken"))
	require.EqualError(t, err, "broken")
	require.Equal(t, 1, asked)
}

// A request for a template is not answered before the policies know its selector. It can be repeated.
func TestAnAdditionThatStaysUnknownIsDeferred(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ask(ctx, t, notKnown)
	_, isDeferred := errors.AsType[*webhook.Deferred](err)
	require.True(t, isDeferred, "%v", err)
	require.ErrorContains(t, err, "do not know resourceVersion 7 of ConfigMap nstpl-selectors yet")
}
