package selfservice

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

// oneNamespace is a client that reads a namespace, and records how it is deleted.
type oneNamespace struct {
	client.Client
	ns      *corev1.Namespace
	deleted *metav1.Preconditions
}

func (c *oneNamespace) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.ns.DeepCopyInto(into.(*corev1.Namespace))
	return nil
}

func (c *oneNamespace) Delete(_ context.Context, _ client.Object, options ...client.DeleteOption) error {
	c.deleted = (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
	return nil
}

func (c *oneNamespace) Status() client.SubResourceWriter { return ignoredStatus{} }

// ignoredStatus accepts the conditions of namespaces.
type ignoredStatus struct{ client.SubResourceWriter }

func (ignoredStatus) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return nil
}

// Each namespace has expired, and is the one that was read if it is deleted.
func TestExpiredNamespacesThatAreDeleted(t *testing.T) {
	t.Parallel()
	rule := func(guards bool) []v1alpha1.ClusterProtectedAttribute {
		return []v1alpha1.ClusterProtectedAttribute{{
			ObjectMeta: metav1.ObjectMeta{Name: "tier"}, AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: "tier", GuardDeletion: guards,
			},
		}}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Namespace)
		rules  []v1alpha1.ClusterProtectedAttribute
		want   bool
	}{
		"with consent": {want: true},
		"without consent": {
			change: func(ns *corev1.Namespace) { delete(ns.Annotations, v1alpha1.DeleteWhenExpiredAnnotation) },
		},
		"protected": {
			change: func(ns *corev1.Namespace) { ns.Annotations[v1alpha1.DeletionProtectionAnnotation] = "true" },
		},
		"with a label that is guarded": {rules: rule(true)},
		"with a label that is protected, but not guarded": {
			rules: append(rule(false), v1alpha1.ClusterProtectedAttribute{
				ObjectMeta: metav1.ObjectMeta{Name: "other"}, AttributeRule: v1alpha1.AttributeRule{
					AttributeKind: v1alpha1.LabelAttribute, AttributeName: "other", GuardDeletion: true,
				},
			}), want: true,
		},
		"of the operator": {change: func(ns *corev1.Namespace) { ns.Name = v1alpha1.OperatorNamespace }},
		"excluded":        {change: func(ns *corev1.Namespace) { ns.Name = "excluded" }},
		"being deleted":   {change: func(ns *corev1.Namespace) { ns.DeletionTimestamp = new(metav1.Now()) }},
		"that lives on": {
			change: func(ns *corev1.Namespace) {
				ns.Annotations[v1alpha1.ExpiresAnnotation] = time.Now().Add(time.Hour).Format(time.RFC3339)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "sandbox", UID: "1", ResourceVersion: "7", Labels: map[string]string{"tier": "gold"},
				Annotations: map[string]string{
					v1alpha1.ExpiresAnnotation: "2026-01-01T00:00:00Z", v1alpha1.DeleteWhenExpiredAnnotation: "true",
				},
			}}
			if test.change != nil {
				test.change(ns)
			}
			api := &oneNamespace{ns: ns}
			r := &Expiry{
				Leader:  &leadership.Leader{Client: api, Recorder: events.NewFakeRecorder(1)},
				Metrics: newMetrics(prometheus.NewRegistry()), Exempt: []string{"excluded"},
				Rules: func(context.Context) (*attributes.Rules, error) {
					return attributes.NewRules(test.rules, nil), nil
				},
			}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: ns.Name}})
			require.NoError(t, err)
			if !test.want {
				require.Nil(t, api.deleted)
				return
			}
			require.Equal(t, &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion}, api.deleted)
		})
	}
}
