package integration_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/openapi"
)

// policies are valid objects of the kinds that templates declare most.
var policies = []string{
	`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {matchLabels: {app: web}},
		policyTypes: [Ingress, Egress], ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: In,
		values: [a]}]}}], ports: [{port: 80, endPort: 90, protocol: TCP}]}], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8,
		except: [10.1.0.0/16]}}]}]}}`,
	`{apiVersion: v1, kind: ResourceQuota, spec: {hard: {pods: 5, requests.cpu: 500m, count/jobs.batch: '3'},
		scopes: [NotBestEffort]}}`,
	`{apiVersion: v1, kind: ResourceQuota, spec: {hard: {pods: '5'}, scopeSelector: {matchExpressions: [
		{scopeName: PriorityClass, operator: In, values: [high]}]}}}`,
	`{apiVersion: v1, kind: LimitRange, spec: {limits: [{type: Container, default: {cpu: 1, memory: 1Gi},
		defaultRequest: {cpu: 500m}, max: {cpu: 2}, min: {cpu: 100m}}]}}`,
	`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, rules: [{apiGroups: [''], resources: [pods], verbs: [get],
		resourceNames: [a]}]}`,
	`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io,
		kind: ClusterRole, name: view}, subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io},
		{kind: ServiceAccount, name: robot, namespace: default}]}`,
	`{apiVersion: v1, kind: ServiceAccount, automountServiceAccountToken: false, imagePullSecrets: [{name: registry}]}`,
	`{apiVersion: v1, kind: ConfigMap, immutable: false, data: {key: value}, binaryData: {other: eA==}}`,
	`{apiVersion: v1, kind: Secret, type: Opaque, immutable: true, data: {key: eA==}, stringData: {other: x}}`,
	`{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 50%, unhealthyPodEvictionPolicy: AlwaysAllow,
		selector: {matchLabels: {app: web}}}}`,
	`{apiVersion: policy.nstpl.dev/v1alpha1, kind: ProtectedAttribute, attributeKind: Label, attributeName: example.com/a,
		roleRef: {kind: ClusterRole, name: view}}`,
}

// workloads are valid objects of kinds with many rules, which only the API server knows.
var workloads = []string{
	`{apiVersion: v1, kind: Service, spec: {type: ClusterIP, selector: {app: web}, sessionAffinity: None, ports: [
		{name: http, port: 80, protocol: TCP, targetPort: web}]}}`,
	`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1, strategy: {type: RollingUpdate, rollingUpdate:
		{maxSurge: 25%}}, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec:
		{restartPolicy: Always, containers: [{name: web, image: web, imagePullPolicy: Always, ports: [{containerPort: 80}],
		resources: {limits: {cpu: 1}}, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
		readinessProbe: {httpGet: {port: 80, scheme: HTTP}}}], securityContext: {seccompProfile: {type: RuntimeDefault}},
		tolerations: [{key: a, operator: Exists, effect: NoSchedule}]}}}}`,
	`{apiVersion: batch/v1, kind: CronJob, spec: {schedule: '@daily', concurrencyPolicy: Forbid, jobTemplate: {spec:
		{template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}`,
	`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem,
		resources: {requests: {storage: 1Gi}}}}`,
	`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: a.example.com, http: {paths: [{path: /,
		pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}`,
	`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1,
		kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization,
		averageUtilization: 50}}}]}}`,
}

// minorVersion returns the version of the API server, such as 1.36.
func minorVersion() string {
	version := controlplane.Version()
	return version[:strings.LastIndex(version, ".")]
}

// The schemas that package schema embeds are those of the API server, except required fields without which the API
// server accepts objects.
func TestEmbeddedSchemasAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../../operator/engine/schema/kubernetes/" + minorVersion() + ".json.gz")
	require.NoError(t, err)
	defer file.Close()
	uncompressed, err := gzip.NewReader(file)
	require.NoError(t, err)
	var embedded map[string]any
	require.NoError(t, json.NewDecoder(uncompressed).Decode(&embedded))
	served, err := openapi.Read(t.Context(), sharedCluster.controlPlane.RESTConfig())
	require.NoError(t, err)
	compared := 0
	for name, schema := range served {
		if !strings.HasPrefix(name, "io.k8s.api.") {
			continue // custom resources of other tests
		}
		want, ok := schema.(map[string]any)
		require.True(t, ok)
		got, ok := embedded[name].(map[string]any)
		require.True(t, ok, "%s is missing: run make generate", name)
		if required, ok := got["required"].([]any); ok {
			require.Subset(t, want["required"], required, name)
		}
		delete(got, "required")
		delete(want, "required")
		require.Equal(t, want, got, "%s: run make generate", name)
		compared++
	}
	require.Greater(t, compared, 400)
}

// maxMissed is the share of the objects that the API server rejects and that schema.Check may accept, in percent.
const maxMissed = 1

// Whatever schema.Check rejects, a strict dry run of the API server rejects, too: there are no false alarms. And of
// policies, few are rejected by the API server only.
func TestSchemaChecksAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	definitions, err := crd.All()
	require.NoError(t, err)
	schemas, err := schema.New(definitions...)
	require.NoError(t, err)
	schemas.KubernetesVersion = minorVersion()
	rejected := 0
	var missed []string
	for _, policy := range policies {
		object := schemaCheckObject(t, policy)
		require.NoError(t, dryRunApply(t, object))
		require.Empty(t, schemas.Check(object))
		mutations(object, func(what string) {
			refusal := dryRunApply(t, object)
			if refusal != nil {
				rejected++
			}
			if problems := schemas.Check(object); refusal == nil {
				require.Empty(t, problems, "a false alarm: %s %s", object["kind"], what)
			} else if len(problems) == 0 {
				missed = append(missed, fmt.Sprintf("%s %s: %v", object["kind"], what, refusal))
			}
		})
	}
	require.Greater(t, rejected, 300)
	t.Logf("schema.Check accepts %d of %d policies that the API server rejects:\n%s", len(missed), rejected,
		strings.Join(missed, "\n"))
	require.LessOrEqual(t, len(missed)*100, rejected*maxMissed)
}

func TestSchemaChecksOfWorkloadsAreNoFalseAlarms(t *testing.T) {
	t.Parallel()
	schemas := &schema.Catalog{KubernetesVersion: minorVersion()}
	for _, workload := range workloads {
		object := schemaCheckObject(t, workload)
		require.NoError(t, dryRunApply(t, object))
		require.Empty(t, schemas.Check(object))
		reported := 0
		mutations(object, func(what string) {
			if problems := schemas.Check(object); len(problems) > 0 {
				reported++
				require.Error(t, dryRunApply(t, object), "a false alarm: %s %s: %v", object["kind"], what, problems)
			}
		})
		require.Greater(t, reported, 50)
	}
}

// schemaCheckObject returns an object with metadata.
func schemaCheckObject(t *testing.T, manifest string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	require.NoError(t, err)
	object := map[string]any{}
	require.NoError(t, utiljson.Unmarshal(data, &object))
	object["metadata"] = map[string]any{
		"name": "schema-check", "namespace": "default", "labels": map[string]any{"a": "b"},
		"annotations": map[string]any{"c": "d"},
	}
	return object
}

// dryRunApply returns why the API server would reject an object, or nil.
func dryRunApply(t *testing.T, object map[string]any) error {
	t.Helper()
	data, err := json.Marshal(object)
	require.NoError(t, err)
	target := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object["apiVersion"], "kind": object["kind"],
		"metadata": map[string]any{"name": "schema-check", "namespace": "default"},
	}}
	err = sharedCluster.client.Patch(t.Context(), target, client.RawPatch(types.ApplyPatchType, data),
		client.DryRunAll, client.ForceOwnership, client.FieldOwner("schema-check"), client.FieldValidation("Strict"))
	if err != nil {
		isRefusal := apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
			apierrors.ReasonForError(err) == "" || apierrors.IsInternalError(err)
		require.True(t, isRefusal, "%v", err)
	}
	return err
}

// mutations calls visit with the object after each of many changes to a value in it: fields are renamed, removed and
// replaced by values of other types. Names and namespaces are not changed.
func mutations(value any, visit func(what string)) {
	replacements := []any{"five", int64(5), true, []any{"x"}, map[string]any{"x": "y"}, "80a", int64(-1), 1.5}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			field := value[key]
			isRoot := value["apiVersion"] != nil && value["metadata"] != nil
			isIdentity := isRoot && (key == "apiVersion" || key == "kind" || key == "metadata") ||
				value["labels"] != nil && (key == "name" || key == "namespace")
			if !isIdentity {
				for _, name := range []string{key + "s", key[:len(key)-1], strings.ToUpper(key[:1]) + key[1:]} {
					if _, exists := value[name]; !exists && name != "" {
						delete(value, key)
						value[name] = field
						visit(key + " -> " + name)
						delete(value, name)
					}
				}
				delete(value, key)
				visit("without " + key)
				for _, replacement := range replacements {
					value[key] = runtime.DeepCopyJSONValue(replacement)
					visit(fmt.Sprintf("%s: %v", key, replacement))
				}
				value[key] = field
			}
			if !isIdentity || key == "metadata" {
				mutations(field, visit)
			}
		}
	case []any:
		for i, item := range value {
			for _, replacement := range replacements {
				value[i] = runtime.DeepCopyJSONValue(replacement)
				visit(fmt.Sprintf("[%d]: %v", i, replacement))
			}
			value[i] = item
			mutations(item, visit)
		}
	}
}
