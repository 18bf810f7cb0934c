package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
)

// The component for cert-manager builds with the manifests for all versions, and has the operator use a certificate of
// cert-manager.
func TestCertManagerComponentProvidesTheCertificate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../../manifests")))
	for _, folder := range []string{"manifests", "manifests/overlays/before-1.36"} {
		kustomization := "resources: [" + folder + "]\ncomponents: [manifests/components/cert-manager]\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, "kustomization.yaml"), []byte(kustomization), 0o600))
		built, err := sharedCluster.kubectl(t.Context(), "", "kustomize", root)
		require.NoError(t, err)
		require.Equal(t, 4, strings.Count(built, "cert-manager.io/inject-ca-from: nstpl-system/nstpl-operator-webhook"))
		require.Contains(t, built, "- --webhook-cert-dir=/certificates")
		require.Contains(t, built, "secretName: nstpl-operator-webhook-cert-manager")
	}
}

// The component sync builds with the manifests for all versions, and takes its image from the kustomization. Its
// objects are in the namespace that the manifests create.
func TestSyncComponentRunsTheImageOfTheKustomization(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../../manifests")))
	for _, folder := range []string{"manifests", "manifests/overlays/before-1.36"} {
		kustomization := "resources: [" + folder + "]\ncomponents: [manifests/components/sync]\nimages:\n" +
			"- {name: nstpl-sync, newName: registry.example.com/nstpl-sync, newTag: v1.2.3}\n" +
			"- {name: nstpl-operator, newName: registry.example.com/nstpl-operator, newTag: v1.2.3}\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, "kustomization.yaml"), []byte(kustomization), 0o600))
		built, err := sharedCluster.kubectl(t.Context(), "", "kustomize", root)
		require.NoError(t, err)
		images := map[string]string{}
		for document := range strings.SplitSeq(built, "\n---\n") {
			deployment := &appsv1.Deployment{}
			require.NoError(t, yaml.Unmarshal([]byte(document), deployment))
			if deployment.Kind == "Deployment" {
				require.Equal(t, v1alpha1.OperatorNamespace, deployment.Namespace)
				images[deployment.Name] = deployment.Spec.Template.Spec.Containers[0].Image
			}
		}
		require.Equal(t, map[string]string{
			"nstpl-operator": "registry.example.com/nstpl-operator:v1.2.3",
			"nstpl-sync":     "registry.example.com/nstpl-sync:v1.2.3",
		}, images, folder)
	}
}

// The manifests and components of a tag are remote bases, as docs/install.md shows: kustomize clones the repository. They
// build to what they build to in a checkout.
func TestManifestsAreRemoteBases(t *testing.T) {
	t.Parallel()
	repository, local, remote := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{repository, local} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS("../../manifests")))
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message=manifests"},
		{"tag", "v1.2.3"},
	} {
		git := exec.CommandContext(t.Context(), "git", append([]string{"-C", repository}, args...)...)
		out, err := git.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	build := func(dir, base, suffix string) string {
		t.Helper()
		kustomization := "resources:\n- " + base + "manifests" + suffix +
			"\ncomponents:\n- " + base + "manifests/components/network-policy" + suffix +
			"\nimages:\n- {name: nstpl-operator, newName: registry.example.com/nstpl-operator, newTag: v1.2.3}\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600))
		built, err := sharedCluster.kubectl(t.Context(), "", "kustomize", dir)
		require.NoError(t, err)
		return built
	}
	want := build(local, "", "")
	require.Contains(t, want, "image: registry.example.com/nstpl-operator:v1.2.3")
	require.Equal(t, want, build(remote, "file://"+repository+"//", "?ref=v1.2.3"))
	direct, err := sharedCluster.kubectl(t.Context(), "", "kustomize",
		"file://"+repository+"//manifests/overlays/before-1.36?ref=v1.2.3")
	require.NoError(t, err)
	require.Contains(t, direct, "- --mutate-namespaces")
}

// Every component builds with the manifests, and the API server accepts its objects of known kinds: those that are not
// the same without the component.
func TestComponentsBuildAndApply(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../../manifests")))
	build := func(kustomization string) []*unstructured.Unstructured {
		require.NoError(t, os.WriteFile(filepath.Join(root, "kustomization.yaml"), []byte(kustomization), 0o600))
		text, err := kustomize(root)
		require.NoError(t, err)
		objects, err := operator.Decode(text)
		require.NoError(t, err)
		return objects
	}
	installed := build("resources: [manifests]\n")
	entries, err := os.ReadDir("../../manifests/components")
	require.NoError(t, err)
	unknown := map[string][]string{}
	for _, entry := range entries {
		folder := "manifests/components/" + entry.Name()
		content, err := os.ReadFile(filepath.Join(root, folder, "kustomization.yaml"))
		require.NoError(t, err)
		kustomization := "resources: [manifests, " + folder + "]\n"
		if strings.Contains(string(content), "kind: Component\n") {
			kustomization = "resources: [manifests]\ncomponents: [" + folder + "]\n"
		}
		applied := 0
		for _, object := range build(kustomization) {
			if slices.ContainsFunc(installed, func(other *unstructured.Unstructured) bool {
				return equality.Semantic.DeepEqual(object, other)
			}) {
				continue
			}
			err := sharedCluster.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
				client.FieldOwner("kubectl"), client.ForceOwnership, client.DryRunAll)
			if meta.IsNoMatchError(err) {
				unknown[entry.Name()] = append(unknown[entry.Name()], object.GetKind())
				continue
			}
			require.NoErrorf(t, err, "component %s: %s %s", entry.Name(), object.GetKind(), object.GetName())
			applied++
		}
		require.NotZero(t, applied+len(unknown[entry.Name()]), entry.Name())
	}
	require.Equal(t, map[string][]string{
		"cert-manager": {"Certificate", "Issuer"},
		"prometheus":   {"PrometheusRule", "ServiceMonitor", "ServiceMonitor"},
	}, unknown)
}

// The NetworkPolicy of the installation allows connections to the webhooks and probes from everywhere. It does not
// limit the operator's own connections, because the addresses and ports of API servers differ between clusters.
func TestNetworkPolicyAllowsWebhooksAndProbes(t *testing.T) {
	t.Parallel()
	policy, deployment := &networkingv1.NetworkPolicy{}, &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: "nstpl-operator"}
	require.NoError(t, sharedCluster.client.Get(t.Context(), key, policy))
	require.NoError(t, sharedCluster.client.Get(t.Context(), key, deployment))
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
	require.Equal(t, deployment.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
	open := map[string]bool{}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port.StrVal] = len(rule.From) == 0
		}
	}
	require.Equal(t, map[string]bool{"webhook": true, "probes": true, "metrics": false}, open)
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		require.Contains(t, open, port.Name)
	}
}

// Applying the manifests again keeps what the operator and administrators have written into their objects.
func TestReapplyingManifestsKeepsWrittenData(t *testing.T) {
	t.Parallel()
	folder, _, err := controlplane.Manifests(controlplane.Version())
	require.NoError(t, err)
	written := func() (webhooks, secret string) {
		t.Helper()
		webhooks, err := sharedCluster.kubectl(t.Context(), "", "get", "validatingwebhookconfiguration",
			v1alpha1.WebhookName,
			"-o", "jsonpath={.webhooks}")
		require.NoError(t, err)
		secret, err = sharedCluster.kubectl(t.Context(), "", "get", "secret", v1alpha1.WebhookSecret, "-n",
			v1alpha1.OperatorNamespace, "-o", "jsonpath={.data}")
		require.NoError(t, err)
		return webhooks, secret
	}
	webhooks, secret := written()
	require.Contains(t, webhooks, "hold.policy.nstpl.dev")
	require.Contains(t, secret, "tls.key")
	_, err = sharedCluster.kubectl(t.Context(), "", "patch", "configmap", v1alpha1.AutoOptOutConfigMap, "-n",
		v1alpha1.OperatorNamespace, "--type=merge", "-p", `{"data": {"users": "listed"}}`)
	require.NoError(t, err)
	out, err := sharedCluster.kubectl(t.Context(), "", "apply", "--kustomize", filepath.Join("../..", folder))
	require.NoError(t, err)
	for line := range strings.Lines(out) {
		if line == "poddisruptionbudget.policy/nstpl-operator configured\n" {
			continue // kubectl replaces its selector by the same one
		}
		require.True(t, strings.HasSuffix(strings.TrimSpace(line), " unchanged"), "%s", line)
	}
	webhooksAfter, secretAfter := written()
	require.Contains(t, webhooksAfter, "hold.policy.nstpl.dev") // other tests add and remove webhooks
	require.Equal(t, secret, secretAfter)
	listed, err := sharedCluster.kubectl(t.Context(), "", "get", "configmap", v1alpha1.AutoOptOutConfigMap, "-n",
		v1alpha1.OperatorNamespace, "-o", "jsonpath={.data.users}")
	require.NoError(t, err)
	require.Equal(t, "listed", listed)
	generation, err := sharedCluster.kubectl(t.Context(), "", "get", "poddisruptionbudget", "nstpl-operator", "-n",
		v1alpha1.OperatorNamespace, "-o", "jsonpath={.metadata.generation}")
	require.NoError(t, err)
	require.Equal(t, "1", generation)
}
