package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// The user who writes a workload's template needs the role. Controllers that create pods from it, report on pods or
// delete them do not.
func TestAttributesOfPodsAreCheckedInWorkloadTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	key := s.name("env")
	rule := s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "deployer"), "prod")
	rule.GuardDeletion = true
	s.protectAttribute("", "env", rule)
	jane, deployer := s.newAllVerbsClient(s.name("jane")), s.newAllVerbsClient(s.name("deployer"))
	s.bindRole(ns, v1alpha1.ClusterRoleKind, s.name("deployer"), userSubject(s.name("deployer")))
	prod := map[string]string{key: "prod"}
	web := newDeployment(ns, "web", 2, prod)
	require.ErrorContains(t, jane.Create(t.Context(), web.DeepCopy()),
		fmt.Sprintf("set label %s in spec.template of Deployment %s/web", key, ns))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, deployer.Create(t.Context(), web.DeepCopy())) })
	var pods []corev1.Pod
	s.eventually(func(c *assert.CollectT) {
		pods = s.listPods(ns, "web")
		assert.Len(c, pods, 2)
	})
	require.Equal(t, "prod", pods[0].Labels[key])
	report := func(body string) error {
		return jane.Status().Patch(t.Context(), pods[0].DeepCopy(), mergePatch(body))
	}

	t.Run("writes that do not change the attribute are allowed", func(t *testing.T) {
		s := s.withT(t)
		scale := mergePatch(`{"spec": {"replicas": 3}}`)
		require.NoError(t, jane.SubResource("scale").Patch(t.Context(), web.DeepCopy(), scale))
		require.NoError(t,
			jane.Patch(t.Context(), web.DeepCopy(),
				mergePatch(
					`{"metadata": {"labels": {"other": "x"}}, "spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}`)))
		s.eventually(func(c *assert.CollectT) { assert.GreaterOrEqual(c, len(s.listPods(ns, "web")), 3) })
		pods = s.listPods(ns, "web")
		require.NoError(t,
			report(`{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`))
	})

	t.Run("writes of subresources that change the attribute are denied", func(t *testing.T) {
		require.ErrorContains(t, report(`{"metadata": {"labels": {"`+key+`": null}}}`), "remove label "+key)
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: ns, Labels: map[string]string{key: "x"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}
		require.ErrorContains(t, jane.SubResource("binding").Create(t.Context(), &pods[0], binding), "change label "+key)
	})

	t.Run("guarded pods can be deleted only by users who may remove the label", func(t *testing.T) {
		s := s.withT(t)
		for _, err := range []error{
			jane.Delete(t.Context(), pods[0].DeepCopy()),
			jane.SubResource("eviction").Create(t.Context(), pods[0].DeepCopy(), &policyv1.Eviction{}),
			jane.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"app": "web"}),
			jane.Delete(t.Context(), web.DeepCopy()),
			jane.Patch(t.Context(), web.DeepCopy(), mergePatch(`{"metadata": {"ownerReferences": [
				{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}}`)),
		} {
			expectForbidden(t, err, "remove label "+key)
		}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(&pods[0]), &corev1.Pod{}))
		require.NoError(t,
			deployer.SubResource("eviction").Create(t.Context(), pods[0].DeepCopy(), &policyv1.Eviction{}))
		require.NoError(t, deployer.Delete(t.Context(), web.DeepCopy()))
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.listPods(ns, "web")) }) // by the garbage collector
	})

	t.Run("deleting the namespace needs no role", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, deployer.Create(t.Context(), newDeployment(ns, "more", 1, prod)))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "more"), 1) })
		require.NoError(t, jane.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		s.waitDeleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	})
}

// Mirror pods are not checked, because kubelets run their static pods in any case.
func TestAttributesOfMirrorPodsAreNotChecked(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	s.eventually(func(c *assert.CollectT) { // without it, the API server denies pods before it calls webhooks
		assert.NoError(c,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{}))
	})
	rule := s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "setter"))
	rule.GuardDeletion = true
	s.protectAttribute("", "tier", rule)
	kubelet := s.newAllVerbsClient(s.name("kubelet"), "system:nodes")
	of := func(short string, annotations map[string]string) *corev1.Pod {
		return newPod(ns, short, func(p *corev1.Pod) {
			p.Labels, p.Annotations, p.Spec.NodeName = map[string]string{s.name("tier"): "control-plane"}, annotations,
				s.name("n")
		})
	}
	mirror := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	require.NoError(t, kubelet.Create(t.Context(), of("static", mirror)))
	require.NoError(t, kubelet.Delete(t.Context(), of("static", nil)))
	require.ErrorContains(t, kubelet.Create(t.Context(), of("plain", nil)), "may not set label")
	require.ErrorContains(t, s.newAllVerbsClient(s.name("jane")).Create(t.Context(), of("forged", mirror)),
		"may not set label")
}

// These are the two examples of the source document "Protected attributes", as manifests/samples contains them.
func TestAttributeSamplesRestrictImagesAndServices(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	samples := []string{"../../manifests/samples/trusted-images.yaml", "../../manifests/samples/external-services.yaml"}
	for _, sample := range samples {
		_, err := cluster.kubectl(t.Context(), "", "apply", "--filename", sample)
		require.NoError(t, err)
	}
	_, err := cluster.kubectl(t.Context(), "", "wait", "--for=condition=Enforced", "clusterprotectedattributes",
		"--all")
	require.NoError(t, err)
	dev, deployer, publisher := s.newAllVerbsClient("dev"), s.newAllVerbsClient("deployer"),
		s.newAllVerbsClient("publisher")
	s.bindRole(ns, v1alpha1.ClusterRoleKind, "prod-deployer", userSubject("deployer"))
	s.bindRole(ns, v1alpha1.ClusterRoleKind, "external-publisher", userSubject("publisher"))
	pod := func(env, image string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: ns, Labels: map[string]string{"env": env}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: image}}},
		}
	}

	t.Run("trusted images in production", func(t *testing.T) {
		s := s.withT(t)
		const trusted, untrusted = "registry.example.com/a", "docker.io/a"
		s.eventually(func(c *assert.CollectT) { // until the API server enforces the bindings and the policy
			assert.NoError(c, deployer.Create(t.Context(), pod("prod", trusted), client.DryRunAll))
			assert.ErrorContains(c, deployer.Create(t.Context(), pod("prod", untrusted), client.DryRunAll),
				"registry.example.com only")
		})
		require.ErrorContains(t, dev.Create(t.Context(), pod("prod", trusted)),
			"ask for a binding to ClusterRole prod-deployer")
		require.NoError(t, dev.Create(t.Context(), pod("staging", untrusted)))
		require.ErrorContains(t, dev.Create(t.Context(), pod("other", untrusted)), "no rule allows this value")
		web := newDeployment(ns, "web", 1, map[string]string{"env": "prod"})
		require.ErrorContains(t, dev.Create(t.Context(), web.DeepCopy()), "in spec.template of Deployment")
		require.NoError(t, deployer.Create(t.Context(), web))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 1) })
	})

	t.Run("external services", func(t *testing.T) {
		s := s.withT(t)
		service := func(labels map[string]string) *corev1.Service {
			return &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Namespace: ns, Labels: labels},
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
				},
			}
		}
		external := map[string]string{"allowExternal": "true"}
		s.eventually(func(c *assert.CollectT) {
			assert.ErrorContains(c, dev.Create(t.Context(), service(nil), client.DryRunAll),
				"needs the label allowExternal")
			assert.NoError(c, publisher.Create(t.Context(), service(external), client.DryRunAll))
		})
		require.ErrorContains(t, dev.Create(t.Context(), service(external)),
			"ask for a binding to ClusterRole external-publisher")
		open := service(external)
		require.NoError(t, publisher.Create(t.Context(), open))
		// Other users may change everything but the label.
		open.Spec.Ports[0].Port = 8080
		require.NoError(t, dev.Update(t.Context(), open))
		open.Labels, open.Spec.Type = nil, corev1.ServiceTypeClusterIP
		require.ErrorContains(t, dev.Update(t.Context(), open), "remove label allowExternal")
	})
}
