package integration_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A client that changes an object again and again is named, and the operator does not compete with it for long. When
// the client stops, the object is corrected.
func TestAFightHasANameAndAnEnd(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("settings", "v"))
	ns := s.createPopulatedNamespace("a")
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		fight(ctx, s, ns)
	}()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status)
		assert.Contains(c, condition.Message, "configmap/settings: is changed again and again by rival")
	})
	stop() // the finding stays for ten minutes
	<-stopped
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, int32(1), status.Namespaces.Drifted)
	})
	s.waitEvent(ns, corev1.EventTypeWarning, "ChangedAgain", "again and again by rival")
	s.eventually(func(c *assert.CollectT) {
		report, _ := runCheck(t, c, sharedCluster)
		assert.Contains(c, report.messages("warning")["fought-objects"], "configmap/settings in namespace "+ns.Name)
	})
	s.waitPresent(ns, configMap("settings", "v"))
	require.Less(t, s.countWrites(ns)["patch configmaps"], 100, "of both clients")
}

// The same is true for labels of the namespace that a template declares.
func TestAFightOverALabelHasAName(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("label")
	template := s.createTemplate("labels", "", labelsNamespaces(label, "declared"))
	other := s.createTemplate("others", "", labelsNamespaces(s.name("other"), "declared"))
	ns := s.createPopulatedNamespace("a")
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		rival := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"`+label+`": "rival"}}}`))
		for found := (&corev1.Namespace{}); ctx.Err() == nil; {
			if s.client.Get(ctx, client.ObjectKey{Name: ns.Name}, found) == nil && found.Labels[label] == "declared" {
				_ = s.client.Patch(ctx, found, rival, client.FieldOwner("rival"))
			}
		}
	}()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status)
		assert.Contains(c, condition.Message, "namespace/"+ns.Name+": label "+label+" is changed again and again by rival,")
		assert.Contains(c, condition.Message, "down to every 1s")
	})
	stop()
	<-stopped
	for _, of := range []struct {
		template *v1alpha1.NamespaceTemplate
		drifted  int32
	}{{template, 1}, {other, 0}} {
		s.waitTemplateStatus(of.template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			assert.Equal(c, of.drifted, status.Namespaces.Drifted)
			assert.Equal(c, 1-of.drifted, status.Namespaces.Populated)
		})
	}
	waitLabels(s, ns, label, "declared")
}

// fight changes the ConfigMap settings of a namespace whenever it is as declared, until ctx is done.
func fight(ctx context.Context, s *testScope, ns *corev1.Namespace) {
	changed := client.RawPatch("application/merge-patch+json", []byte(`{"data": {"key": "rival"}}`))
	settings := newConfigMap(ns.Name, "settings")
	version := ""
	for ctx.Err() == nil {
		if s.client.Get(ctx, client.ObjectKeyFromObject(settings), settings) != nil || settings.ResourceVersion == version {
			continue
		}
		if s.client.Patch(ctx, settings, changed, client.FieldOwner("rival")) == nil {
			version = settings.ResourceVersion
		}
	}
}

// Kubernetes restores its ConfigMap kube-root-ca.crt after each change, so a template cannot declare it.
func TestObjectsThatKubernetesRestoresAreNotDeclared(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	err := s.client.Create(t.Context(), s.newTemplate("defaults", configMap("kube-root-ca.crt", "v")))
	require.ErrorContains(t, err, "the name kube-root-ca.crt is reserved for the ConfigMap that Kubernetes creates")
	s.createTemplate("accounts", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, labels: {a: b}}\n")
	s.createPopulatedNamespace("a")
}
