package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// The API server stores these values in another way, and sets defaults for those that mean none. Admission is not
// blamed for that, and the objects are not applied again and again.
func TestOtherWaysToWriteAValueAreNotBlamedOnAdmission(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.applyYAML(strings.NewReplacer("widgets", "ratios", "Widget", "Ratio").Replace(widgetDefinition))
	s.applyYAML(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: integration-normalized, labels: {policy.nstpl.dev/aggregate-to-operator: "true"}}
rules:
- {apiGroups: [apps], resources: [deployments], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [list, watch, create, patch, delete]}
`)
	require.NoError(t, sharedCluster.waitAggregatedRules(t.Context()))
	s.createTemplate("defaults", documents(`
apiVersion: example.com/v1
kind: Ratio
metadata: {name: null-with-a-default}
spec: {size: 1.0, color: null}
`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: binary, labels: {}, annotations: {}}
binaryData:
  image: |
    AAEC
    AwQF
data: {empty: ""}
`, `
apiVersion: v1
kind: Secret
metadata: {name: both}
type: ""
data:
  a: YQ==
  b: |
    AAEC
    AwQF
stringData: {a: other, empty: ""}
`, `
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec:
  scopes: []
  hard: {pods: 50, requests.cpu: 1000m, requests.memory: 1024Mi, limits.cpu: 0.5, limits.memory: 0.5Gi, secrets: 1e3}
`, `
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec:
  limits:
  - {type: Container, default: {cpu: 0.5, memory: 1024Mi}, defaultRequest: {cpu: 100m, memory: 128e6}, max: {}}
`, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy}
spec:
  podSelector: {matchLabels: {}, matchExpressions: []}
  policyTypes: []
  ingress:
  - {}
  - {from: [], ports: [{port: 80, endPort: 90}]}
  - {from: [{ipBlock: {cidr: 10.0.0.0/8, except: []}}, {namespaceSelector: {matchLabels: {}}}]}
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
rules: [{apiGroups: [""], resources: [pods], resourceNames: [], verbs: [get], nonResourceURLs: []}]
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: role}
roleRef: {apiGroup: "", kind: Role, name: role}
subjects:
- {kind: ServiceAccount, name: robot, apiGroup: "", namespace: other}
- {kind: User, name: jane, apiGroup: "", namespace: ""}
- {kind: Group, name: team}
`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
automountServiceAccountToken: false
secrets: []
imagePullSecrets: []
`, `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget}
spec: {maxUnavailable: 0, selector: {matchLabels: {}}}
`, `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lease}
spec: {acquireTime: "2026-01-01T01:00:00.000000+01:00", leaseDurationSeconds: 15, holderIdentity: ""}
`, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec:
  accessModes: [ReadWriteOnce]
  volumeName: ""
  storageClassName: ""
  resources: {requests: {storage: 1024Mi}, limits: {}}
`, `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaler}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - {type: Pods, pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: 1000m}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
`, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  minReadySeconds: 0
  paused: false
  selector: {matchLabels: {app: web}}
  strategy: {}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      serviceAccountName: robot
      hostNetwork: true
      restartPolicy: ""
      schedulerName: ""
      securityContext: {}
      nodeSelector: {}
      tolerations: []
      containers:
      - name: web
        image: web
        imagePullPolicy: ""
        command: []
        env: [{name: a, value: ""}, {name: cpu, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 0}}}]
        ports: [{containerPort: 80, hostPort: 0, protocol: ""}]
        resources: {limits: {cpu: 1000m, memory: 0.5Gi}, requests: {}}
        livenessProbe: {httpGet: {path: "", port: 80, scheme: ""}, timeoutSeconds: 0, periodSeconds: 0}
        terminationMessagePath: ""
        volumeMounts: [{name: scratch, mountPath: /scratch, readOnly: false, subPath: ""}]
      volumes:
      - {name: scratch, emptyDir: {medium: "", sizeLimit: 1024Mi}}
      - name: token
        projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3600, audience: ""}}]}
      - {name: none, emptyDir: {}}
status: {}
`, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 1 * * *"
  suspend: true
  concurrencyPolicy: ""
  jobTemplate:
    metadata: {creationTimestamp: null}
    spec:
      template:
        metadata: {creationTimestamp: null}
        spec: {restartPolicy: Never, containers: [{name: a, image: a, resources: {}}]}
status: {}
`, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: []
  rules:
  - host: ""
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80, name: ""}}}}]}
`))
	ns := s.createNamespace("a")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status, condition.Message)
		assert.NotContains(c, condition.Message, "; ")
	})
}
