package sync_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// alter is an admission policy that changes the rules of ClusterRoles.
const alter = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: altered}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [rbac.authorization.k8s.io]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [clusterroles]
  matchConditions:
  - {name: altered, expression: "object.metadata.name.startsWith('altered-')"}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "[JSONPatch{op: 'replace', path: '/rules/0/verbs', value: ['get']}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: altered}
spec: {policyName: altered}
`

// A commit is not said to be in force while the API server stores something else than the commit declares.
func TestAnObjectThatAdmissionChangesIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(alter), 0o600))
	_, err := kubectl(t.Context(), "apply", "--filename", file)
	require.NoError(t, err)
	x := newTree(t, "altered")
	waitStored := func(verb string) { // until the policy is in force, or no longer
		t.Helper()
		x.eventually(func(c *assert.CollectT) {
			probe := role("altered-probe")
			probe.Rules = []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			}
			if assert.NoError(c, cluster.client.Create(t.Context(), probe, client.DryRunAll)) {
				assert.Equal(c, []string{verb}, probe.Rules[0].Verbs)
			}
		})
	}
	waitStored("get")
	files := map[string]string{
		"role.yaml": roleFile("altered-role", "list"), "altered-a/namespace.yaml": namespaceFile("altered-a"),
	}
	a := x.commit(files)
	x.follow()
	const why = "the API server stored another value of rules[0].verbs[0] than declared: exempt the object from the " +
		"webhook or policy that mutates it, or declare that value"
	require.Equal(t, "commit "+a[:7]+" is applied, but clusterrole.rbac.authorization.k8s.io/altered-role: "+why,
		x.waitReason("Contested", a))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, []v1alpha1.RepositoryFailure{
			{Object: "clusterrole.rbac.authorization.k8s.io/altered-role", Message: why},
		}, status.Contested)
		assert.Equal(c, a, status.Commits.Applied)
		assert.Nil(c, status.LastSyncTime)
	})
	x.mustExist(namespace("altered-a")) // the rest of the commit is in force

	_, err = kubectl(t.Context(), "delete", "--filename", file)
	require.NoError(t, err)
	waitStored("list") // each further apply before that would delay the next one
	x.waitRequestServed()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, "Synced", conditionReady(status).Reason)
		assert.Empty(c, status.Contested)
	})
}

// Another client that changes an object again and again is named, and the fight gets slow. A new declaration of the
// object, and other objects, are applied at once.
func TestAFightIsNamedAndGetsSlow(t *testing.T) {
	t.Parallel()
	x := newTree(t, "fought")
	files := map[string]string{
		"role.yaml": roleFile("fought-role", "list"), "fought-a/namespace.yaml": namespaceFile("fought-a"),
		"fought-b/namespace.yaml": namespaceFile("fought-b"),
	}
	a := x.commit(files)
	x.follow()
	x.waitApplied(a)
	var rounds atomic.Int64
	ctx, stop := t.Context(), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		rival := client.WithFieldOwner(cluster.client, "rival")
		wait.Until(func() {
			fought := role("fought-role")
			if cluster.client.Get(ctx, client.ObjectKeyFromObject(fought), fought) != nil ||
				fought.Rules[0].Verbs[0] == "watch" {
				return
			}
			fought.Rules[0].Verbs = []string{"watch"}
			if rival.Update(ctx, fought) == nil {
				rounds.Add(1)
			}
		}, 5*time.Millisecond, stop)
	}()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, "Contested", conditionReady(status).Reason)
		assert.Equal(c, []v1alpha1.RepositoryFailure{{
			Object:  "clusterrole.rbac.authorization.k8s.io/fought-role",
			Message: "rival changes it again and again: stop that client, or remove the object from the tree",
		}}, status.Contested)
	})
	x.waitEvent("Contested", "rival changes it again and again")
	// A fight without an end has hundreds of rounds by now.
	require.Less(t, rounds.Load(), int64(30))
	// Nothing else waits for it, neither creations nor deletions.
	fewer := without(files, "fought-b/namespace.yaml")
	fewer["fought-c/namespace.yaml"] = namespaceFile("fought-c")
	x.commit(fewer)
	x.waitExists(namespace("fought-c"))
	x.waitGone(namespace("fought-b"))
	require.Less(t, rounds.Load(), int64(40))
	close(stop)
	<-ended
	fewer["role.yaml"] = roleFile("fought-role", "get")
	x.waitApplied(x.commit(fewer))
	fought := role("fought-role")
	x.mustExist(fought)
	require.Equal(t, []string{"get"}, fought.Rules[0].Verbs)
}

// An added field of a template changes what namespaces get as much as a change of a declared one. A rollout may be
// paused, and the tree says so.
func TestATreeUndoesAdditionsToItsTemplates(t *testing.T) {
	t.Parallel()
	x := newTree(t, "added")
	commit := x.commit(map[string]string{"added-n/namespace.yaml": namespaceFile("added-n")})
	x.follow()
	x.waitApplied(commit)
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "added"}}
	x.mustExist(template)
	declared := template.Spec
	mergePatch(t, template, `{
		"metadata": {"annotations": {"policy/namespace-template-apply": "disable"}},
		"spec": {"driftPolicy": "Report", "rollout": {"paused": true}, "namespaceMetadata": {"labels": {"a": "b"}}}
	}`)
	x.eventually(func(c *assert.CollectT) {
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
		declared.Rollout = &v1alpha1.Rollout{Paused: true}
		assert.Equal(c, declared, template.Spec)
		assert.NotContains(c, template.Annotations, v1alpha1.TemplateApplyAnnotation)
	})
	commit = x.commit(map[string]string{
		"added-n/namespace.yaml": namespaceFile("added-n"), "viewers.yaml": bindingFile("viewers", "view", "ann"),
	})
	x.waitApplied(commit)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Contains(c, conditionReady(status).Message,
			"template added does not reach all namespaces yet, because its rollout is paused: see")
	})
}
