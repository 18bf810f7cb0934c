package namespace

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// namespaceWith returns a namespace that may be initializing, with a Populated condition unless populated is empty.
func namespaceWith(initializing bool, populated corev1.ConditionStatus) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	if initializing {
		ns.Labels = map[string]string{v1alpha1.InitializingLabel: "true"}
		ns.Annotations = map[string]string{v1alpha1.PendingAnnotation: "example.com/cni"}
	}
	if populated != "" {
		ns.Status.Conditions = []corev1.NamespaceCondition{
			{Type: v1alpha1.NamespacePopulated, Status: populated, Reason: "ObjectsFailed", Message: "quota: no"},
		}
	}
	return ns
}

// retrying returns a namespace that is not populated because of failures that may pass.
func retrying() *corev1.Namespace {
	ns := namespaceWith(true, corev1.ConditionFalse)
	ns.Status.Conditions[0].Reason = populate.ConditionRetrying
	return ns
}

// terminating returns a namespace that is being deleted.
func terminating() *corev1.Namespace {
	ns := namespaceWith(true, "")
	ns.DeletionTimestamp = new(metav1.Now())
	return ns
}

func TestIsDone(t *testing.T) {
	tests := map[string]struct {
		hasTemplates bool
		latest       *corev1.Namespace
		want         bool
	}{
		"not read yet":                      {true, nil, false},
		"no condition yet":                  {true, namespaceWith(true, ""), false},
		"no condition, not initializing":    {true, namespaceWith(false, ""), false},
		"populated, initializing":           {true, namespaceWith(true, corev1.ConditionTrue), false},
		"populated and initialized":         {true, namespaceWith(false, corev1.ConditionTrue), true},
		"failed":                            {true, namespaceWith(true, corev1.ConditionFalse), true},
		"failed, and the operator retries":  {true, retrying(), false},
		"unknown templates, initializing":   {false, namespaceWith(true, ""), false},
		"unknown templates and initialized": {false, namespaceWith(false, ""), true},
		"being deleted, initializing":       {true, terminating(), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := waiter{hasTemplates: test.hasTemplates, latest: test.latest}
			require.Equal(t, test.want, w.isDone())
		})
	}
}

func testWaiter() (w *waiter, out, errOut *bytes.Buffer) {
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	missing := map[populate.ObjectID]populate.Object{}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		missing[populate.ObjectID{GroupKind: schema.GroupKind{Kind: kind}, Name: "one"}] = populate.Object{
			Template: &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "base"}},
		}
	}
	return &waiter{Session: cli.NewSession(streams), progress: out, missing: missing, hasTemplates: true}, out, errOut
}

func TestHandlePrintsEachDeclaredObjectOnce(t *testing.T) {
	w, out, errOut := testWaiter()
	for _, id := range []populate.ObjectID{
		{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "one"},
		{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "one"},
		{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "not-declared"},
	} {
		w.handle(event{populated: &id})
	}
	require.Equal(t, "configmap/one populated (template base)\n", out.String())
	require.Empty(t, errOut.String())
	require.Len(t, w.missing, 1)
}

func TestHandleDoesNotWaitForKindsThatCannotBeWatched(t *testing.T) {
	w, out, errOut := testWaiter()
	w.handle(event{unwatchable: &survey.Unreadable{
		Kind: schema.GroupKind{Kind: "Secret"}, Resource: "secrets", Namespace: "team-a",
	}})
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "cannot list and watch secrets in namespace team-a")
	require.Len(t, w.missing, 1)
}

func TestHandlePrintsPendingInitializersOnce(t *testing.T) {
	w, _, errOut := testWaiter()
	w.handle(event{namespace: namespaceWith(true, "")})
	require.Empty(t, errOut.String())
	w.handle(event{namespace: namespaceWith(true, corev1.ConditionTrue)})
	w.handle(event{namespace: namespaceWith(true, corev1.ConditionTrue)})
	require.Equal(t, "namespace/team-a is populated but still waits for example.com/cni\n", errOut.String())
}

func TestInterruptedShowsWhyTheNamespaceIsNotPopulated(t *testing.T) {
	for name, test := range map[string]struct {
		latest *corev1.Namespace
		want   string
	}{
		"not read": {nil, "namespace/team-a was created but is not populated after 5s: " +
			"run 'kubectl nstpl status team-a' to check again"},
		"not reported": {namespaceWith(true, ""), "namespace/team-a was created but is not populated after 5s: " +
			"run 'kubectl nstpl status team-a' to check again"},
		"the operator retries": {retrying(), "namespace/team-a was created but is not populated after 5s: " +
			"Retrying: quota: no: run 'kubectl nstpl status team-a' to check again"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := testWaiter()
			w.timeout, w.latest = 5*time.Second, test.latest
			ctx, cancel := cli.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			<-ctx.Done()
			require.EqualError(t, w.interrupted(ctx, "team-a"), test.want)
		})
	}
}

func TestFinishFailsIfTheNamespaceIsBeingDeleted(t *testing.T) {
	w, out, _ := testWaiter()
	w.latest = terminating()
	require.EqualError(t, w.finish(), "namespace/team-a was created, but is being deleted again")
	require.Empty(t, out.String())
}

func TestFinish(t *testing.T) {
	tests := map[string]struct {
		latest  *corev1.Namespace
		wantOut string
		wantErr string
	}{
		"populated":   {namespaceWith(false, corev1.ConditionTrue), "namespace/team-a populated\n", ""},
		"initialized": {namespaceWith(false, ""), "namespace/team-a initialized\n", ""},
		"failed": {
			namespaceWith(false, corev1.ConditionFalse), "",
			"namespace/team-a was created but is not populated: ObjectsFailed: quota: no",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, out, errOut := testWaiter()
			w.latest = test.latest
			err := w.finish()
			require.Equal(t, test.wantOut, out.String())
			require.Equal(t, "missing: configmap/one (template base)\nmissing: secret/one (template base)\n",
				errOut.String())
			if test.wantErr == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.wantErr)
			}
		})
	}
}
