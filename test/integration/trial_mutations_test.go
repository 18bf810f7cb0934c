package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// realPolicies are objects as platform teams write them.
const realPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow-web, labels: {app.kubernetes.io/managed-by: platform}}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}
      podSelector: {matchExpressions: [{key: app, operator: In, values: [controller]}]}
    - ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}
    ports: [{protocol: TCP, port: 8080, endPort: 8090}]
  egress: [{ports: [{protocol: UDP, port: 53}]}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: budget}
spec:
  hard: {requests.cpu: "10", limits.memory: 20Gi, pods: "50", count/deployments.apps: "20"}
  scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec:
  limits:
  - {type: Container, default: {cpu: 500m, memory: 512Mi}, defaultRequest: {cpu: 100m, memory: 128Mi}, max: {cpu: "2"}}
  - {type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 100Gi}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer}
rules:
- {apiGroups: [apps], resources: [deployments, deployments/scale], verbs: [get, list, update, patch]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers-$(NAMESPACE)}
- {kind: ServiceAccount, name: builder, namespace: ci}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}, unhealthyPodEvictionPolicy: AlwaysAllow}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: builder, annotations: {example.com/role-arn: "arn:aws:iam::1:role/$(NAMESPACE)"}}
automountServiceAccountToken: false
imagePullSecrets: [{name: registry}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {log.level: info, region: eu-west-1, namespace: $(NAMESPACE)}
binaryData: {logo.png: aGVsbG8=}
immutable: false
---
apiVersion: v1
kind: Secret
metadata: {name: registry}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: eyJhdXRocyI6e319}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cleanup}
spec:
  schedule: "0 2 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        spec:
          restartPolicy: OnFailure
          securityContext: {runAsNonRoot: true, runAsUser: 1000}
          containers:
          - name: cleanup
            image: registry.example.com/tools:1.2
            args: [--namespace, $(NAMESPACE)]
            resources: {requests: {cpu: 10m, memory: 32Mi}}
            env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: registry, key: token}}}]
`

// mutation is a random change of an object at one field.
type mutation struct {
	random *rand.Rand
	// path is the path of the changed field, and what the change in words. describe sets both.
	path []string
	what string
}

// badValues are values that are wrong for most fields.
var badValues = []any{
	"", "five", "UPPER_case", "-1", "1e400", "a b", strings.Repeat("x", 300), "$(NAMESPAC)", "10.0.0.0/99", "0x10",
	int64(-1), int64(0), int64(70000), 1.5, true, nil, []any{}, []any{"a", int64(1)}, map[string]any{},
	map[string]any{"a": "b"},
}

// mutate returns an object with one field changed below a value. It begins below apiVersion and kind.
func (m *mutation) mutate(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			break
		}
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(value)), func(key string) bool {
			return len(m.path) == 0 && (key == "apiVersion" || key == "kind")
		})
		key := keys[m.random.IntN(len(keys))]
		changed := maps.Clone(value)
		m.path = append(m.path, key)
		if m.random.IntN(6) > 0 {
			changed[key] = m.mutate(value[key])
			return changed
		}
		delete(changed, key)
		m.what = "removed"
		if m.random.IntN(3) > 0 {
			renamed := m.rename(key)
			changed[renamed] = value[key]
			m.what = "renamed to " + renamed
		}
		return changed
	case []any:
		if len(value) == 0 {
			break
		}
		changed := slices.Clone(value)
		i := m.random.IntN(len(value))
		m.path = append(m.path, fmt.Sprint(i))
		if m.random.IntN(8) == 0 {
			m.what = "repeated"
			return append(changed, value[i])
		}
		changed[i] = m.mutate(value[i])
		return changed
	}
	bad := badValues[m.random.IntN(len(badValues))]
	m.what = fmt.Sprintf("set to %.40v (%T)", bad, bad)
	return bad
}

// rename returns a key with a typing error.
func (m *mutation) rename(key string) string {
	switch i := m.random.IntN(len(key)); m.random.IntN(4) {
	case 0:
		return key + "s"
	case 1:
		return key[:i] + key[i+1:] + "x"
	case 2:
		return strings.ToUpper(key[:1]) + key[1:]
	default:
		return key[:i] + key[i:i+1] + key[i:]
	}
}

// No change of a policy is accepted that then fails in a namespace.
func TestAcceptedMutationsPopulate(t *testing.T) {
	t.Parallel()
	const mutations = 200
	s := newScope(t, sharedCluster)
	policies := parseYAML(t, realPolicies)
	var mu sync.Mutex
	accepted, refused := 0, 0
	require.NoError(t, concurrently(4, func(worker int) error {
		var errs []error
		for i := worker; i < len(policies)+mutations; i += 4 {
			object, description := policies[i%len(policies)].DeepCopy(), "unchanged"
			if i >= len(policies) {
				m := &mutation{random: rand.New(rand.NewPCG(16, uint64(i)))}
				object.Object = m.mutate(object.Object).(map[string]any)
				description = strings.Join(m.path, ".") + " " + m.what
			}
			isAccepted, err := populateIfAccepted(s, i, object.Object)
			if err == nil && !isAccepted && i < len(policies) {
				err = fmt.Errorf("it was refused")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", policies[i%len(policies)].GetKind(), description, err))
			}
			mu.Lock()
			if isAccepted {
				accepted++
			} else {
				refused++
			}
			mu.Unlock()
		}
		return errors.Join(errs...)
	}))
	t.Logf("%d accepted, %d refused", accepted, refused)
	require.Greater(t, accepted, 40)
	require.Greater(t, refused, 80)
}

// populateIfAccepted creates a template with one object. If the API server accepts the template, it creates a namespace
// and returns an error unless the namespace is populated.
func populateIfAccepted(s *testScope, i int, object map[string]any) (bool, error) {
	short := fmt.Sprintf("m-%03d", i)
	raw, err := json.Marshal(object)
	if err != nil {
		return false, err
	}
	template := &v1alpha1.NamespaceTemplate{}
	template.Name = s.name(short)
	template.Spec.Namespaces = selectLabel(testLabel, s.name(short))
	template.Spec.Templates = []runtime.RawExtension{{Raw: raw}}
	ctx := s.t.Context()
	err = s.client.Create(ctx, template)
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "try again") || apierrors.IsInvalid(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ns := &corev1.Namespace{}
	ns.Name, ns.Labels = s.name(short), map[string]string{testLabel: s.name(short)}
	if err := s.client.Create(ctx, ns); err != nil {
		return true, err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			if err := s.client.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
				return false, err
			}
			condition := populatedCondition(ns)
			if condition.Status == corev1.ConditionFalse {
				return false, fmt.Errorf("accepted, and then: %s", condition.Message)
			}
			return condition.Status == corev1.ConditionTrue, nil
		})
	return true, errors.Join(err, s.client.Delete(ctx, template), s.client.Delete(ctx, ns))
}
