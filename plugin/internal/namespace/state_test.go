package namespace

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

func TestStateOfANamespace(t *testing.T) {
	t.Parallel()
	created, changed := metav1.NewTime(time.Unix(1000, 0).UTC()), metav1.NewTime(time.Unix(2000, 0).UTC())
	condition := func(status corev1.ConditionStatus, reason, message string) []corev1.NamespaceCondition {
		return []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: status, Reason: reason, Message: message, LastTransitionTime: changed,
		}}
	}
	const undeclared = "no template declares it, and template base is authoritative for its kind; " +
		"authoritativePolicy is Report"
	populated := condition(corev1.ConditionTrue, populate.ConditionPopulated, "")
	for name, test := range map[string]struct {
		pending    string
		conditions []corev1.NamespaceCondition
		optOut     string
		state      state
		reason     string
		message    string
		since      *time.Time
	}{
		"populated": {conditions: populated, state: settled, reason: "Populated", since: &changed.Time},
		"failing": {
			conditions: condition(corev1.ConditionFalse, populate.ConditionObjectsFailed, "quota/x: no"), state: failing,
			reason: "ObjectsFailed", message: "quota/x: no", since: &changed.Time,
		},
		"retrying": {
			conditions: condition(corev1.ConditionFalse, populate.ConditionRetrying, "quota/x: no"), state: pending,
			reason: "Retrying", message: "quota/x: no", since: &changed.Time,
		},
		"populated, but held by another initializer": {
			pending: "net.example.com", conditions: populated, state: held, reason: "Waiting",
			message: "held: writes wait for net.example.com; ", since: &created.Time,
		},
		"opted out, but held": {
			pending: "net.example.com", optOut: "true", state: held, reason: "Waiting",
			message: "held: writes wait for net.example.com", since: &created.Time,
		},
		"held by the operator": {
			pending: "namespace-template", state: pending, reason: "NotReported",
			message: "the operator has not reported on the namespace yet; held: writes wait for namespace-template",
		},
		"drifted: the condition does not say since when": {
			conditions: condition(corev1.ConditionTrue, "Populated", "quota/x: drifted: spec.hard.pods changed by editor"),
			state:      drifted, reason: "Drifted", message: "quota/x: drifted: spec.hard.pods changed by editor",
		},
		"without room for drift": {
			conditions: condition(corev1.ConditionTrue, "Populated", "secret/x: no; secret/y: no; …"), state: unknown,
			reason: "Unknown", message: "secret/x: no; secret/y: no; …",
		},
		"an object that another client added": {
			conditions: condition(corev1.ConditionTrue, "Populated", "role.rbac.authorization.k8s.io/c: "+undeclared),
			state:      drifted, reason: "Drifted", message: "role.rbac.authorization.k8s.io/c: " + undeclared,
		},
		"another warning": {
			conditions: condition(corev1.ConditionTrue, "Populated", "quota/x: declared by templates a, b"), state: settled,
			reason: "Populated", message: "quota/x: declared by templates a, b", since: &changed.Time,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{
					Name: "n", CreationTimestamp: created, Labels: map[string]string{},
					Annotations: map[string]string{v1alpha1.OptOutAnnotation: test.optOut},
				},
				Status: corev1.NamespaceStatus{Conditions: test.conditions},
			}
			if test.pending != "" {
				ns.Labels[v1alpha1.InitializingLabel] = "true"
				ns.Annotations[v1alpha1.PendingAnnotation] = test.pending
			}
			got := newNamespaceStatus(match.NewIndex(), ns)
			require.Equal(t, test.state, got.State)
			require.Equal(t, test.reason, got.Reason)
			require.Equal(t, test.message, got.Message)
			require.Equal(t, test.since, got.Since)
		})
	}
}

func TestTheMostUrgentNamespacesComeFirst(t *testing.T) {
	t.Parallel()
	statuses := []namespaceStatus{
		{Namespace: "a", State: settled}, {Namespace: "b", State: pending}, {Namespace: "c", State: drifted},
		{Namespace: "c-too", State: unknown},
		{Namespace: "d", State: held}, {Namespace: "f", State: failing}, {Namespace: "e", State: failing},
	}
	slices.SortStableFunc(statuses, byUrgency)
	var names []string
	for _, s := range statuses {
		names = append(names, s.Namespace)
	}
	require.Equal(t, []string{"e", "f", "d", "c", "c-too", "b", "a"}, names)
}
