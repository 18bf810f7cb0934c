package integration_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// admittedBy returns the constraint that a pod's annotations name, and whose permission allowed its use.
func admittedBy(s *testScope, pod *corev1.Pod) [2]string {
	s.t.Helper()
	found := &corev1.Pod{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(pod), found))
	return [2]string{found.Annotations[v1alpha1.SCCAnnotation], found.Annotations[v1alpha1.SCCSubjectAnnotation]}
}

func annotationPatch(key, value string) client.Patch {
	return mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, key, value))
}

// Every update that admission checks records the constraint that admits the pod, even if the update sets another one.
func TestSCCRecordIsWrittenAtUpdates(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	jane, _ := s.newPodAdmin("jane")
	plain := newPod(ns, "plain")
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, jane.Create(t.Context(), plain.DeepCopy())) })
	require.Equal(t, [2]string{"restricted", "user"}, admittedBy(s, plain))

	t.Run("a forged or removed record is corrected", func(t *testing.T) {
		s := s.withT(t)
		for _, key := range []string{v1alpha1.SCCAnnotation, v1alpha1.SCCSubjectAnnotation} {
			for _, value := range []string{`"privileged"`, `"serviceaccount"`, `""`, `null`} {
				require.NoError(t, jane.Patch(t.Context(), plain.DeepCopy(), annotationPatch(key, value)))
				require.Equal(t, [2]string{"restricted", "user"}, admittedBy(s, plain), "%s: %s", key, value)
			}
		}
		_, err := s.kubectl(t.Context(),
			`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": "`+ns+`", "annotations": {"`+v1alpha1.SCCAnnotation+`": "privileged"}}}`,
			"apply", "--server-side", "--force-conflicts", "--filename", "-")
		require.NoError(t, err)
		require.Equal(t, "restricted", admittedBy(s, plain)[0])
		for _, value := range []string{`"restricted"`, `"privileged"`, `""`} {
			err := jane.Patch(t.Context(), plain.DeepCopy(), annotationPatch(v1alpha1.RequiredSCCAnnotation, value))
			require.Equal(t, value == `""`, err == nil, "%s: %v", value, err)
			if err != nil {
				require.ErrorContains(t, err, "can't be changed")
			}
		}
	})

	t.Run("another constraint that admits the pod by now is recorded", func(t *testing.T) {
		s := s.withT(t)
		raised := `[{"op": "add", "path": "/priority", "value": 7}]`
		_, err := s.kubectl(t.Context(), "", "patch", "scc", "privileged", "--type=json", "--patch", raised)
		require.NoError(t, err)
		s.bindRole(ns, v1alpha1.ClusterRoleKind, s.createPrivilegedRole(),
			accountSubject(ns, "default"))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c,
				jane.Patch(t.Context(), plain.DeepCopy(),
					mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)))
			assert.NoError(c,
				jane.Patch(t.Context(), plain.DeepCopy(),
					mergePatch(`{"metadata": {"labels": {"a": null}}}`)))
			assert.Equal(c, [2]string{"privileged", "serviceaccount"}, admittedBy(s, plain))
		})
		require.NoError(t,
			s.client.Delete(t.Context(),
				&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
					Namespace: ns, Name: roleBindingName(s, ns, "privileged"),
				}}))
		image := func(name string) client.Patch {
			return client.RawPatch(types.StrategicMergePatchType,
				fmt.Appendf(nil, `{"spec": {"containers": [{"name": "a", "image": %q}]}}`, name))
		}
		tries := 0
		s.eventually(func(c *assert.CollectT) {
			tries++
			assert.NoError(c, jane.Patch(t.Context(), plain.DeepCopy(), image(fmt.Sprint("image-", tries))))
			assert.Equal(c, [2]string{"restricted", "user"}, admittedBy(s, plain))
		})
	})
}

// roleBindingName returns the name of the RoleBinding in a namespace to the role of createPrivilegedRole.
func roleBindingName(s *testScope, namespace, constraint string) string {
	s.t.Helper()
	list := &rbacv1.RoleBindingList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list, client.InNamespace(namespace)))
	for _, binding := range list.Items {
		if binding.RoleRef.Name == s.name(constraint) {
			return binding.Name
		}
	}
	s.t.Fatalf("no RoleBinding to %s", s.name(constraint))
	return ""
}

// Subresources that copy annotations to a pod cannot change the record, and otherwise work, with and without the
// operator.
func TestSCCRecordCannotBeChangedThroughSubresources(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	_, jane := s.newPodAdmin("jane")
	pods := jane.CoreV1().Pods(ns)
	made := newPod(ns, "p", func(p *corev1.Pod) {
		p.Spec.SchedulerName = "none"
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	})
	s.eventually(func(c *assert.CollectT) {
		_, err := pods.Create(t.Context(), made.DeepCopy(), metav1.CreateOptions{})
		assert.NoError(c, err)
	})
	refused := func(t *testing.T, err error, key string) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%s: %v", key, err)
		require.ErrorContains(t, err, "cannot be changed through", key)
	}
	expectUnchanged := func(t *testing.T) {
		t.Helper()
		for _, key := range []string{
			v1alpha1.SCCAnnotation, v1alpha1.SCCSubjectAnnotation, v1alpha1.RequiredSCCAnnotation,
		} {
			for _, kind := range []types.PatchType{
				types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType,
			} {
				body := fmt.Appendf(nil,
					`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {%q: "privileged"}}}`,
					key)
				options := metav1.PatchOptions{}
				if kind == types.ApplyPatchType {
					options = metav1.PatchOptions{FieldManager: "jane", Force: new(true)}
				}
				_, err := pods.Patch(t.Context(), "p", kind, body, options, "status")
				refused(t, err, key+" by "+string(kind))
			}
			found, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
			require.NoError(t, err)
			found.Annotations = maps.Clone(found.Annotations)
			delete(found.Annotations, v1alpha1.SCCAnnotation)
			_, err = pods.UpdateStatus(t.Context(), found, metav1.UpdateOptions{})
			refused(t, err, key)

			binding := &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: ns, Name: "p", Annotations: map[string]string{key: "privileged"},
				},
				Target: corev1.ObjectReference{Kind: "Node", Name: "n"},
			}
			refused(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}), key)
			refused(t,
				jane.CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").Body(binding).Do(
					t.Context()).Error(), key)
			refused(t, pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: binding.ObjectMeta}), key)
		}
		require.Equal(t, [2]string{"restricted", "user"}, admittedBy(s, made))
	}

	t.Run("with the operator", func(t *testing.T) {
		s := s.withT(t)
		expectUnchanged(t)
		_, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType,
			[]byte(
				`{"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "20m"}}}]}}`), metav1.PatchOptions{}, "resize")
		require.NoError(t, err)
		require.Equal(t, [2]string{"restricted", "user"}, admittedBy(s, made))
	})

	t.Run("without the operator", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.operator.Kill())
		expectUnchanged(t)
		_, err := pods.Patch(t.Context(), "p", types.MergePatchType,
			[]byte(`{"metadata": {"annotations": {"a": "b"}}, "status": {"message": "m"}}`), metav1.PatchOptions{},
			"status")
		require.NoError(t, err)
		require.NoError(t, pods.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", Annotations: map[string]string{"b": "c"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{}))
		found, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "n", found.Spec.NodeName)
		require.Equal(t, "b", found.Annotations["a"])
		require.Equal(t, "c", found.Annotations["b"])
		require.Equal(t, [2]string{"restricted", "user"}, admittedBy(s, made))
	})
}

// newWindowsPod returns a pod for Windows.
func newWindowsPod(namespace string, change ...func(*corev1.PodSpec)) *corev1.Pod {
	return newPod(namespace, "w", func(p *corev1.Pod) {
		p.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
		for _, do := range change {
			do(&p.Spec)
		}
	})
}

// runsHostProcess makes a container a process of the host.
func runsHostProcess(spec *corev1.PodSpec) {
	spec.HostNetwork = true
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{
		HostProcess: new(true), RunAsUserName: new(`NT AUTHORITY\SYSTEM`),
	}}
}

// Windows pods are restricted like Linux pods.
func TestSCCRestrictsWindowsPods(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	jane, _ := s.newPodAdmin("jane")

	t.Run("a restricted pod gets only fields that Windows supports", func(t *testing.T) {
		expectFieldsForWindows(t, s.withT(t), ns, jane)
	})

	t.Run("privileged fields are denied", func(t *testing.T) { expectPrivilegedWindowsFieldsDenied(t, ns, jane) })

	t.Run("HostProcess containers need a constraint that allows privileged containers", func(t *testing.T) {
		expectHostProcessNeedsPrivileged(t, s.withT(t), ns, jane)
	})
}

func expectFieldsForWindows(t *testing.T, s *testScope, ns string, jane client.Client) {
	t.Helper()
	s.eventually(func(c *assert.CollectT) {
		pod := newWindowsPod(ns)
		if assert.NoError(c, jane.Create(t.Context(), pod, client.DryRunAll)) {
			assert.Equal(c, "restricted", pod.Annotations[v1alpha1.SCCAnnotation])
			assert.Equal(c, &corev1.SecurityContext{RunAsNonRoot: new(true)},
				pod.Spec.Containers[0].SecurityContext,
				"admission sets only fields that Windows supports")
		}
	})
}

func expectPrivilegedWindowsFieldsDenied(t *testing.T, ns string, jane client.Client) {
	t.Helper()
	for denial, change := range map[string]func(*corev1.PodSpec){
		"windowsOptions.hostProcess": runsHostProcess,
		"spec.securityContext.windowsOptions.hostProcess": func(spec *corev1.PodSpec) {
			spec.HostNetwork = true
			spec.SecurityContext = &corev1.PodSecurityContext{
				WindowsOptions: &corev1.WindowsSecurityContextOptions{
					HostProcess: new(true), RunAsUserName: new("a"),
				},
			}
		},
		"spec.hostNetwork": func(spec *corev1.PodSpec) { spec.HostNetwork = true },
		"hostPath volumes": func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{{
				Name: "c", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: `C:\`}},
			}}
		},
		"hostPort": func(spec *corev1.PodSpec) {
			spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 1}}
		},
		"runAsUserName": func(spec *corev1.PodSpec) {
			spec.SecurityContext = &corev1.PodSecurityContext{
				WindowsOptions: &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerAdministrator")},
			}
		},
	} {
		err := jane.Create(t.Context(), newWindowsPod(ns, change), client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", denial, err)
		require.ErrorContains(t, err, denial)
		undeclared := newWindowsPod(ns, change)
		undeclared.Spec.OS, undeclared.Spec.NodeSelector = nil, map[string]string{corev1.LabelOSStable: "windows"}
		err = jane.Create(t.Context(), undeclared, client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", denial, err)
		require.ErrorContains(t, err, denial)
	}
}

func expectHostProcessNeedsPrivileged(t *testing.T, s *testScope, ns string, jane client.Client) {
	t.Helper()
	pod := newWindowsPod(ns, runsHostProcess)
	require.NoError(t, s.client.Create(t.Context(), pod))
	require.Equal(t, "privileged", pod.Annotations[v1alpha1.SCCAnnotation])
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "d"}},
	}
	require.ErrorContains(t, jane.SubResource("ephemeralcontainers").Update(t.Context(), pod.DeepCopy()),
		"hostProcess")
	plain := newWindowsPod(ns)
	plain.Name = "plain"
	require.NoError(t, jane.Create(t.Context(), plain))
	plain.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "d", Image: "d",
		SecurityContext: &corev1.SecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)},
		},
	}}}
	require.ErrorContains(t, jane.SubResource("ephemeralcontainers").Update(t.Context(), plain.DeepCopy()),
		"spec.ephemeralContainers[0].securityContext.windowsOptions.hostProcess")
}
