package plugin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// misplaced is a namespace that existed before the tree of its policy space.
const misplaced = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}, "status": {"conditions": [
	{"type": "policy.nstpl.dev/Populated", "status": "False", "reason": "NotAdopted", "message": "it is left alone"}]}}`

// No template of the policy space selects the namespace. That it has no differences from the others does not tell
// what is deleted once it is adopted.
func TestTheTemplatesOfAMisplacedNamespaceAreUnknown(t *testing.T) {
	serve(t, map[string]string{
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": []}`,
		"/api/v1/namespaces/team-a": misplaced,
	})
	code, printed := run(t, "diff", "team-a")
	require.Contains(t, printed,
		"not compared: namespace/team-a with the templates of its policy space: it is left alone\n")
	require.Contains(t, printed, "no known differences in 1 namespace\n")
	require.Equal(t, 2, code)
	_, printed = run(t, "why", "namespace/team-a")
	require.Contains(t, printed, "See what would be deleted with 'kubectl nstpl diff --tree DIR'")
}

// The operator decides about protected attributes, so without one, what the rules allow is denied.
func TestCanSetWithoutAnOperator(t *testing.T) {
	const rbac, nstpl = "/apis/rbac.authorization.k8s.io/v1", "/apis/policy.nstpl.dev/v1alpha1"
	serve(t, map[string]string{
		nstpl: `{"kind": "APIResourceList"}`,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{"apiVersion": "authentication.k8s.io/v1",
			"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "jane"}}}`,
		nstpl + "/clusterprotectedattributes": `{"kind": "ClusterProtectedAttributeList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": [{"metadata": {"name": "env"}, "attributeKind": "Label",
			"attributeName": "env", "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "setter"}}]}`,
		nstpl + "/namespaces/a/protectedattributes": `{"kind": "ProtectedAttributeList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": []}`,
		rbac + "/clusterrolebindings": `{"kind": "ClusterRoleBindingList", "apiVersion": "rbac.authorization.k8s.io/v1",
			"items": [{"metadata": {"name": "janes"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
			"name": "jane"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "setter"}}]}`,
		rbac + "/namespaces/a/rolebindings": `{"kind": "RoleBindingList", "apiVersion": "rbac.authorization.k8s.io/v1",
			"items": []}`,
	})
	const note = "requests that touch protected labels and annotations are denied meanwhile"
	code, printed := run(t, "attributes", "can-set", "env=prod", "-n", "a")
	require.Zero(t, code, printed)
	require.Contains(t, printed, "yes - ")
	require.Contains(t, printed, note)
	_, printed = run(t, "attributes", "can-set", "other=prod", "-n", "a")
	require.Contains(t, printed, "yes - no rule protects other")
	require.NotContains(t, printed, note)
}

// The namespace has a revision that cannot be read, and that may name the creator where the stored template does not.
func TestATransferWithAnUnreadRevision(t *testing.T) {
	for name, test := range map[string]struct{ revisions, want string }{
		"complete": {`{"revision": 2, "generation": 2, "name": "t-2", "state": "Complete"}`, "no object changes"},
		"stopped": {
			`{"revision": 2, "generation": 2, "name": "t-2", "state": "Stopped", "startTime": "2026-01-02T03:04:05Z"},
			{"revision": 1, "generation": 1, "name": "t-1", "state": "Complete"}`, "no known object changes",
		},
	} {
		serve(t, map[string]string{
			"/api":                            `{"kind": "APIVersions", "versions": ["v1"]}`,
			"/apis":                           `{"kind": "APIGroupList", "apiVersion": "v1"}`,
			"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList"}`,
			"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
				{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["list"]}]}`,
			"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
				"apiVersion": "policy.nstpl.dev/v1alpha1", "items": [{"metadata": {"name": "t", "uid": "u", "generation": 2},
				"spec": {"namespaces": {"labelSelector": {}}, "templates": [
				{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]},
				"status": {"observedGeneration": 2, "conditions": [{"type": "Accepted", "status": "True",
				"observedGeneration": 2}], "revisions": [` + test.revisions + `]}}]}`,
			"/apis/policy.nstpl.dev/v1alpha1/namespaces/a/templateexemptions": `{"kind": "TemplateExemptionList",
				"apiVersion": "policy.nstpl.dev/v1alpha1", "items": []}`,
			"/api/v1/namespaces/a": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "n",
				"creationTimestamp": "2025-01-02T03:04:05Z"}}`,
			"/api/v1/namespaces/a/configmaps": `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
				"items": []}`,
		})
		_, printed := run(t, "transfer", "a", "--to", "joe", "--dry-run=client")
		require.Contains(t, printed, "\n"+test.want+" in namespace/a\n", name)
	}
}

// The record of an owner's namespace is as old as the last operator.
func TestARecordIsNotCompleteWithoutAnOperator(t *testing.T) {
	answers := map[string]string{
		"/api":                            `{"kind": "APIVersions"}`,
		"/apis":                           `{"kind": "APIGroupList", "apiVersion": "v1"}`,
		"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList"}`,
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": forbidden,
		"/api/v1/namespaces/team-a": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"},
			"status": {"conditions": [{"type": "policy.nstpl.dev/Populated", "status": "True", "message": "1 object of t"}]}}`,
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/nstpl-system/leases/nstpl-operator"
	for name, held := range map[string]string{
		"held": `{"holderIdentity": "one_1", "leaseDurationSeconds": 2000000000,
			"renewTime": "2026-01-02T03:04:05.000000Z"}`,
		"released": `{"holderIdentity": ""}`,
	} {
		answers[lease] = `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": ` + held + `}`
		serve(t, answers)
		code, printed := run(t, "diff", "team-a")
		require.Contains(t, printed, "no known differences in 1 namespace\n")
		if name == "held" {
			require.Zero(t, code, printed)
			continue
		}
		require.Equal(t, 2, code)
		require.Contains(t, printed, "no difference is recorded or corrected meanwhile")
	}
}

// Nothing follows the trees of an audited cluster if nstpl-sync ended.
func TestAReportNotesThatNothingIsSynced(t *testing.T) {
	const nstpl, rbac = "/apis/policy.nstpl.dev/v1alpha1", "/apis/rbac.authorization.k8s.io/v1"
	answers := map[string]string{
		nstpl: `{"kind": "APIResourceList"}`,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{"apiVersion": "authentication.k8s.io/v1",
			"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "jane"}}}`,
		"/api/v1/namespaces/a": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}`,
	}
	for _, path := range []string{
		nstpl + "/namespacetemplates", nstpl + "/policyspaces", nstpl + "/clusterprotectedattributes",
		nstpl + "/namespaces/a/protectedattributes", nstpl + "/securitycontextconstraints",
		rbac + "/clusterrolebindings", rbac + "/namespaces/a/rolebindings", rbac + "/clusterroles", rbac + "/namespaces/a/roles",
	} {
		answers[path] = forbidden
	}
	for items, want := range map[string]bool{`{"metadata": {"name": "corp"}}`: true, "": false} {
		answers[nstpl+"/policyrepositories"] = `{"apiVersion": "policy.nstpl.dev/v1alpha1",
			"kind": "PolicyRepositoryList", "items": [` + items + `]}`
		serve(t, answers)
		_, printed := run(t, "report", "a", "-o", "json")
		const note = "no nstpl-sync holds lease nstpl-sync in namespace nstpl-system"
		if want {
			require.Contains(t, printed, note)
		} else {
			require.NotContains(t, printed, note)
		}
	}
}

// A new namespace gets what the copies of the others have, and not what their source has by now.
func TestAPreviewOfCopiesWhoseSourceWaits(t *testing.T) {
	const delay = "changes of the source configmap/ca in namespace vault wait until 2030-01-02T03:04:05Z, so that its " +
		"copies do not fill etcd"
	serve(t, map[string]string{
		"/api":                            `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis":                           `{"kind": "APIGroupList", "apiVersion": "v1"}`,
		"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList"}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
			{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["list"]}]}`,
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": [{"metadata": {"name": "t", "uid": "u"},
			"spec": {"namespaces": {"labelSelector": {}}, "sources": [
			{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "vault", "name": "ca"}]},
			"status": {"conditions": [{"type": "Populated", "status": "True", "message": "populated; ` + delay + `"}]}}]}`,
		"/api/v1/namespaces/vault/configmaps/ca": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"},
			"data": {"a": "newer"}}`,
	})
	_, printed := run(t, "preview", "a", "--creator", "joe")
	require.Contains(t, printed, "a: newer\n")
	require.Contains(t, printed, "\ntemplate t: "+delay+"\n")
}

// The operator creates nothing that a template declares which it has never accepted.
func TestADiffNamesTemplatesThatAreNotAccepted(t *testing.T) {
	serve(t, map[string]string{
		"/api":                            `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis":                           `{"kind": "APIGroupList", "apiVersion": "v1"}`,
		"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList"}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
			{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["list"]}]}`,
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": [{"metadata": {"name": "t", "uid": "u", "generation": 1},
			"spec": {"namespaces": {"labelSelector": {}}, "templates": [
			{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]}, "status": {"observedGeneration": 1,
			"conditions": [{"type": "Accepted", "status": "False", "reason": "Invalid", "observedGeneration": 1}]}}]}`,
		"/api/v1/namespaces/a":            `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "n"}}`,
		"/api/v1/namespaces/a/configmaps": `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": []}`,
	})
	const note = "template t is not accepted, so the operator does nothing with it meanwhile " +
		"('kubectl nstpl why namespacetemplate/t' says why)\n"
	for _, command := range []string{"diff a -o table", "preview a"} {
		_, printed := run(t, strings.Fields(command)...)
		require.Contains(t, printed, note, command)
	}
}
