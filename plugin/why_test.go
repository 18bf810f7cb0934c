package plugin_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each part of nstpl, and of Kubernetes, that denies a request has a remedy of its own.
func TestEveryDenialInAMessageIsExplained(t *testing.T) {
	serve(t, nil)
	_, printed := run(t, "why", "-n", "a", `Error from server (Forbidden): admission webhook "attributes.policy.nstpl.dev" `+
		"denied the request: user \"joe\" may not set label env of Namespace prod (nstpl:attribute-protected)\n"+
		"namespace \"prod\": the name must match dev-* (nstpl:self-service)\n"+
		"deployment.apps/web created\n"+
		`Error from server (Forbidden): error when creating "b.yaml": pods "b" is forbidden: User "joe" cannot create `+
		"resource \"pods\" in API group \"\" in the namespace \"a\"\n"+
		"Error from server: something else\n")
	for _, want := range []string{
		"attribute-protected: A ProtectedAttribute", "self-service: The rules of a policy space",
		"user joe has no permission to create pods in namespace a", "not explained: Error from server: something else",
	} {
		require.Contains(t, printed, want)
	}
	require.NotContains(t, printed, "the message quotes")
	_, printed = run(t, "why", "namespace a: no room (nstpl:quota-exceeded): not populated (nstpl:population-failed)")
	require.Contains(t, printed, "the message quotes quota-exceeded")
}

// serveTrials selects an API server that stores nothing, in which the operator leads if isLed is true, and a policy
// space limits much in namespace a. It answers dry runs with what the client sends, or with a status code.
func serveTrials(t *testing.T, isLed bool, code int) {
	t.Helper()
	serveTrialsWith(t, isLed, code, "", "")
}

// serveTrialsWith does so. It answers the dry run of a template with a message, or as any other if that is empty, and a
// list of the operator's endpoints with slices.
func serveTrialsWith(t *testing.T, isLed bool, code int, template, slices string) {
	t.Helper()
	lease := ""
	if isLed {
		lease = `"holderIdentity": "one_1", "leaseDurationSeconds": 2000000000, "renewTime": "2026-01-02T03:04:05.000000Z"`
	}
	const kinds = `{"kind": "APIResourceList", "groupVersion": %q, "resources": [%s]}`
	kind := func(name, kind string) string {
		return fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": true, "verbs": ["create"]}`, name, kind)
	}
	group := func(group, version string) string {
		return fmt.Sprintf(`{"name": %q, "versions": [{"groupVersion": "%[1]s/%[2]s", "version": %[2]q}]}`, group, version)
	}
	answers := map[string]string{
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "groups": [` + group("apps", "v1") + `, ` + group("batch", "v1") + `, ` +
			group("resource.k8s.io", "v1") + `]}`,
		"/api/v1": fmt.Sprintf(kinds, "v1", strings.Join([]string{
			kind("pods", "Pod"), kind("persistentvolumeclaims", "PersistentVolumeClaim"), kind("configmaps", "ConfigMap"),
		}, ", ")),
		"/apis/apps/v1":            fmt.Sprintf(kinds, "apps/v1", kind("statefulsets", "StatefulSet")),
		"/apis/batch/v1":           fmt.Sprintf(kinds, "batch/v1", kind("jobs", "Job")),
		"/apis/resource.k8s.io/v1": fmt.Sprintf(kinds, "resource.k8s.io/v1", kind("resourceclaims", "ResourceClaim")),
		"/api/v1/namespaces/a/resourcequotas/nstpl-policyspace": `{"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": {"name": "nstpl-policyspace"}, "spec": {"hard": {"pods": "1E", "requests.cpu": "1E",
			"requests.storage": "1E", "gpu.deviceclass.resource.k8s.io/devices": "1E"}}}`,
		"/apis/coordination.k8s.io/v1/namespaces/nstpl-system/leases/nstpl-operator": `{"kind": "Lease",
			"apiVersion": "coordination.k8s.io/v1", "spec": {` + lease + `}}`,
		"/api/v1/namespaces/a/persistentvolumeclaims/old": `{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": {"name": "old", "resourceVersion": "7"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}`,
		"/apis/discovery.k8s.io/v1/namespaces/nstpl-system/endpointslices": `{"kind": "EndpointSliceList",
			"apiVersion": "discovery.k8s.io/v1", "items": [` + slices + `]}`,
		"/version": `{"gitVersion": "v1.37.2"}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, exists := answers[r.URL.Path]
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespacetemplates") && template != "":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
				"message": %q}`, template)
		case r.URL.Query().Has("dryRun") && code != http.StatusOK:
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "message": "no time"}`, code)
		case r.URL.Query().Has("dryRun"):
			_, _ = io.Copy(w, r.Body)
		case exists:
			fmt.Fprint(w, answer)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		}
	}))
	t.Cleanup(server.Close)
	selectServer(t, server)
}

// tried returns what why says of a dry run of an object.
func tried(t *testing.T, object string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(object, "\t", "")), 0o600))
	_, printed := run(t, "why", "-f", file, "-n", "a")
	return printed
}

const (
	triedPod = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [
		{name: c, resources: {requests: {cpu: "2"}}}]}}`
	triedJob = `{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {parallelism: 10, template: {spec: {
		containers: [{name: c}]}}}}`
	triedClaim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: old, resourceVersion: "7"},
		spec: {resources: {requests: {storage: %s}}}}`
	triedDevices = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: gpu}}`
	triedOther   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`
)

// A dry run is allowed although the operator, which checks it without denying it when it does not answer, is not
// reached. The real request would be denied, because Kubernetes then charges the quota.
func TestADryRunWithoutTheWebhooks(t *testing.T) {
	const failed = `Internal error occurred: failed calling webhook "template.policy.nstpl.dev": failed to call webhook: ` +
		`no endpoints available for service "nstpl-operator-webhook"`
	const denied = `namespacetemplates.policy.nstpl.dev is forbidden: User "joe" cannot create resource ` +
		`"namespacetemplates" in API group "policy.nstpl.dev" at the cluster scope`
	const ready, unready = `{"endpoints": [{"conditions": {"ready": true}}]}`, `{"endpoints": [{"conditions": {"ready": false}}]}`
	const denies = "), so requests about which it decides are denied: run 'kubectl nstpl check'"
	for name, test := range map[string]struct{ template, slices, want string }{
		"reached":             {"", "", ""},
		"no endpoint":         {failed, "", `no endpoints available for service "nstpl-operator-webhook"`},
		"of another program":  {strings.ReplaceAll(failed, "policy.nstpl.dev", "example.com"), "", ""},
		"no rights, reached":  {denied, ready, ""},
		"no rights, unknown":  {denied, "", ""},
		"no rights, no ready": {denied, unready, "the Service nstpl-operator-webhook has no ready endpoint"},
	} {
		serveTrialsWith(t, true, http.StatusOK, test.template, test.slices)
		printed := tried(t, triedPod)
		if test.want == "" {
			require.Contains(t, printed, " would be allowed\n", name)
			require.NotContains(t, printed, "Operator:", name)
			continue
		}
		require.Contains(t, printed, "it is unknown whether pod/web in namespace a would be allowed\n", name)
		require.Contains(t, printed, "the API server does not reach the operator ("+test.want+denies, name)
	}
}

// The API server charges nothing for a dry run, and the operator checks what it can.
func TestTheRoomThatADryRunDoesNotShowIsUnknown(t *testing.T) {
	const unknown = "the dry run did not show whether the quotas of policy spaces have room for its "
	larger, same := fmt.Sprintf(triedClaim, "2Gi"), fmt.Sprintf(triedClaim, "1Gi")
	serveTrials(t, true, http.StatusOK)
	for _, object := range []string{triedPod, triedOther, same} {
		require.Contains(t, tried(t, object), " would be allowed\n")
	}
	for object, limits := range map[string]string{
		larger: "requests.storage", triedDevices: "gpu.deviceclass.resource.k8s.io/devices",
	} {
		printed := tried(t, object)
		require.Contains(t, printed, "it is unknown whether ")
		require.Contains(t, printed, unknown+limits+"\n")
	}
	require.Contains(t, tried(t, triedJob), "and so would its pods")

	serveTrials(t, false, http.StatusOK)
	for _, object := range []string{triedOther, same} {
		require.Contains(t, tried(t, object), " would be allowed\n")
	}
	printed := tried(t, triedPod)
	require.Contains(t, printed, "it is unknown whether pod/web in namespace a would be allowed\n")
	require.Contains(t, printed, unknown+"pods, requests.cpu\n")
	require.Contains(t, tried(t, triedJob), "would be allowed, but it is unknown whether its pods would be\n")
}

func TestTheOtherPodsOfAJobAreNotTried(t *testing.T) {
	serveTrials(t, true, http.StatusOK)
	const others = "it is unknown whether quotas have room for more than one of them"
	require.Contains(t, tried(t, triedJob), others)
	require.NotContains(t, tried(t, strings.Replace(triedJob, "10", "1", 1)), others)
}

// A controller creates the claims of a StatefulSet before its pods.
func TestTheVolumeClaimsOfAStatefulSetAreNotTried(t *testing.T) {
	serveTrials(t, true, http.StatusOK)
	const unknown = "its volume claims were not tried: if they are denied, its controller creates no pods"
	const set = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {
		template: {spec: {containers: [{name: c}]}}, volumeClaimTemplates: [{metadata: {name: d}}]}}`
	require.Contains(t, tried(t, set), unknown)
	require.NotContains(t, tried(t, strings.Replace(set, "{metadata: {name: d}}", "", 1)), unknown)
}

// A dry run stores nothing, so the next one does not meet what it was about.
func TestObjectsAreTriedAlone(t *testing.T) {
	serveTrials(t, true, http.StatusOK)
	const note = "each object was tried alone"
	require.Contains(t, tried(t, triedOther+"\n---\n"+triedPod), note)
	require.NotContains(t, tried(t, triedOther), note)
}

// The API server allows a change that the operator takes back.
func TestAChangeOfAnObjectOfATemplateMayNotStay(t *testing.T) {
	serveTrials(t, true, http.StatusOK)
	changed := strings.Replace(fmt.Sprintf(triedClaim, "1Gi"), "name: old",
		"name: old, labels: {policy/namespace-template-name: t}", 1)
	require.Contains(t, tried(t, changed), "it has the label of template t: the operator may take the change back, as "+
		"'kubectl nstpl why persistentvolumeclaim/old -n a' explains")
}

// The administrator who explains the message of a developer may use constraints that the developer may not.
func TestWhatTheCallerMayUseDoesNotMatterForOtherUsers(t *testing.T) {
	serve(t, map[string]string{
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{"kind": "SelfSubjectReview",
			"apiVersion": "authentication.k8s.io/v1", "status": {"userInfo": {"username": "Jane Doe"}}}`,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"kind": "SelfSubjectAccessReview",
			"apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`,
	})
	for user, matters := range map[string]bool{"Jane Doe": true, "dev": false} {
		_, printed := run(t, "why", fmt.Sprintf("pod a/web: no SecurityContextConstraints admit it for user %q or its "+
			"service account:\n- constraint anyuid: not usable (nstpl:constraint-denied)", user))
		require.Equal(t, matters, strings.Contains(printed, "you may use anyuid in namespace a"), printed)
	}
}

// The operator's report names objects of templates that the owner of a namespace may not read.
func TestOwnersLearnWhatTheOperatorReported(t *testing.T) {
	serve(t, map[string]string{
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`, "/apis": `{"kind": "APIGroupList", "groups": []}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
			{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["get"]}]}`,
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": forbidden,
		"/api/v1/namespaces/a/configmaps/there": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
			"name": "there", "namespace": "a", "labels": {"policy/namespace-template-name": "t"}}}`,
		"/api/v1/namespaces/a": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "status": {
			"conditions": [{"type": "policy.nstpl.dev/Populated", "status": "True", "reason": "Populated",
			"message": "2 objects of t; configmap/there: drifted: ` +
			`data.a changed by x; configmap/gone: drifted: another client deleted it"}]}}`,
	})
	_, printed := run(t, "why", "configmap/gone", "-n", "a")
	require.Contains(t, printed, "configmap/gone in namespace a does not exist: the operator last reported: "+
		"drifted: another client deleted it\n")
	_, printed = run(t, "why", "configmap/there", "-n", "a")
	require.Contains(t, printed, "drifted: data.a changed by x\n")
}

// What the API server did not decide, it did not deny.
func TestAnErrorOfTheAPIServerIsNoDenial(t *testing.T) {
	for code, isDenied := range map[int]bool{
		http.StatusUnauthorized: false, http.StatusServiceUnavailable: false, http.StatusGatewayTimeout: false,
		http.StatusForbidden: true,
	} {
		serveTrials(t, true, code)
		printed := tried(t, triedPod)
		if isDenied {
			require.Contains(t, printed, "pod/web in namespace a would be denied")
			continue
		}
		require.NotContains(t, printed, "would be denied")
		require.Contains(t, printed, "Pod web: it is unknown whether it would be allowed: ")
	}
}

// The last commit that was applied says nothing about the cluster of today.
func TestAPolicyRepositoryThatNothingSyncs(t *testing.T) {
	serve(t, map[string]string{
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "groups": [{"name": "policy.nstpl.dev", "versions": [
			{"groupVersion": "policy.nstpl.dev/v1alpha1", "version": "v1alpha1"}]}]}`,
		"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList", "groupVersion": "policy.nstpl.dev/v1alpha1",
			"resources": [{"name": "policyrepositories", "kind": "PolicyRepository", "verbs": ["get"]}]}`,
		"/apis/policy.nstpl.dev/v1alpha1/policyrepositories/corp": `{"apiVersion": "policy.nstpl.dev/v1alpha1",
			"kind": "PolicyRepository", "metadata": {"name": "corp"}, "status": {"commits": {"applied": "1", "fetched": "1"}}}`,
		"/apis/coordination.k8s.io/v1/namespaces/nstpl-system/leases/nstpl-sync": `{"kind": "Lease",
			"apiVersion": "coordination.k8s.io/v1", "spec": {"holderIdentity": ""}}`,
	})
	_, printed := run(t, "why", "policyrepository/corp")
	require.Contains(t, printed, "no nstpl-sync holds lease nstpl-sync in namespace nstpl-system")
}

// The API server denies the use of a policy space that does not exist with the same message. A policy space that is
// being created does not exist either, and a grant helps a namespace that leaves a deleted one.
func TestAMissingPolicySpaceIsNamedBesideTheGrant(t *testing.T) {
	const inGroup = " in the API group policy.nstpl.dev (nstpl:policyspace-use)"
	const missing = "policyspace x does not exist"
	for message, want := range map[string]struct {
		isMissing bool
		grant     string
	}{
		"user dev may not put namespaces into policyspace x: ask for the verb use on policyspaces/x": {
			true, "the verb use on policyspaces/x",
		},
		"user dev may not put policyspaces into policyspace x or take them out of policyspace y: ask for the verb use on " +
			"policyspaces/x and policyspaces/y": {true, "the verb use on policyspaces/x and policyspaces/y"},
		"user dev may not change the label policy.nstpl.dev/tree of policyspace x: ask for the verb patch on " +
			"namespacetemplates": {false, "the verb patch on namespacetemplates"},
		"user dev may not change the owners of policyspace x, without which Kubernetes deletes it: ask for the verb patch on " +
			"all policyspaces": {false, "the verb patch on policyspaces"},
	} {
		serve(t, nil)
		_, printed := run(t, "why", message+inGroup)
		require.Equal(t, want.isMissing, strings.Contains(printed, missing), printed)
		require.Equal(t, want.isMissing, strings.Contains(printed, "correct its name, or create it first"), printed)
		require.NotContains(t, printed, "policyspace y does not exist")
		require.Contains(t, printed, "Ask an administrator for "+want.grant+".", printed)
	}
}

// What a template says about an object does not replace the permission that is missing.
func TestAForbiddenWriteToADeclaredObjectNamesThePermission(t *testing.T) {
	const template = `{"metadata": {"name": "t", "uid": "u", "generation": 1}, "spec": {"driftPolicy": %q,
		"namespaces": {"labelSelector": {}}, "templates": [{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"name": "c"}}]}, "status": {"observedGeneration": 1}}`
	const metadata = `"metadata": {"name": "c", "namespace": "a", "labels": {"policy/namespace-template-name": "t"},
		"managedFields": [{"manager": "nstpl", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {}}]}`
	for _, policy := range []string{"Report", "Correct"} {
		serve(t, map[string]string{
			"/api": `{"kind": "APIVersions", "versions": ["v1"]}`, "/apis": `{"kind": "APIGroupList", "groups": []}`,
			"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
				{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["get", "list"]}]}`,
			"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
				"apiVersion": "policy.nstpl.dev/v1alpha1", "items": [` + fmt.Sprintf(template, policy) + `]}`,
			"/api/v1/namespaces/a":              `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "n"}}`,
			"/api/v1/namespaces/a/configmaps/c": `{"apiVersion": "v1", "kind": "ConfigMap", ` + metadata + `}`,
			"/api/v1/namespaces/a/configmaps": `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [
				{` + metadata + `}]}`,
		})
		_, printed := run(t, "why", `configmaps "c" is forbidden: User "dev" cannot patch resource "configmaps" in API group `+
			`"" in the namespace "a"`)
		require.Contains(t, printed, "Ask an administrator for the verb patch on configmaps.", policy)
		require.Contains(t, printed, "kubectl nstpl exempt a --template t --object configmap/c", policy)
	}
}
