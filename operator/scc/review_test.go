package scc_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// The profiles, as YAML without what they have in common.
const (
	open       = `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}}`
	restricted = `{allowPrivilegeEscalation: false, allowedCapabilities: [NET_BIND_SERVICE], requiredDropCapabilities: [ALL],
		runAsUser: {type: MustRunAsRange}, seLinuxContext: {type: MustRunAs}, fsGroup: {type: MustRunAs}, seccompProfiles: [runtime/default],
		volumes: [configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, projected, secret]}`
)

var allocated = map[string]string{
	v1alpha1.UIDRangeAnnotation: "1000650000/10000", v1alpha1.SupplementalGroupsAnnotation: "1000650000/10000",
	v1alpha1.MCSAnnotation: "s0:c26,c5",
}

func constraint(t *testing.T, name, text string) *v1alpha1.SecurityContextConstraints {
	t.Helper()
	c := &v1alpha1.SecurityContextConstraints{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), c), text)
	c.Name = name
	return c
}

func pod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), p), text)
	return p
}

func spec(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	if !strings.Contains(text, "containers:") {
		text = strings.TrimSuffix(strings.TrimSpace(text), "}")
		if text != "{" {
			text += ", "
		}
		text += "containers: [{name: a, image: a}]}"
	}
	return pod(t, "{metadata: {name: p}, spec: "+text+"}")
}

// with is a pod whose container has a security context.
func with(context string) string {
	return `{containers: [{name: a, image: a, securityContext: ` + context + `}]}`
}

func everybody(_ *v1alpha1.SecurityContextConstraints, subject string) bool {
	return subject == scc.UserSubject
}

func review(t *testing.T, constraintText string, p *corev1.Pod, mode scc.Mode) scc.Verdict {
	t.Helper()
	before := p.DeepCopy()
	verdict := scc.Review(scc.Request{
		Pod: p, Mode: mode, NamespaceAnnotations: allocated, Usable: everybody,
		Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(constraint(t, "it", constraintText))},
	})
	require.Equal(t, before, p, "the pod that was asked about is left alone")
	if verdict.Allowed() {
		// Admission may be called again for the same pod, and must not change it then.
		again := scc.Review(scc.Request{
			Pod: verdict.Pod, Mode: scc.MayNotMutate, NamespaceAnnotations: allocated, Usable: everybody,
			Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(constraint(t, "it", constraintText))},
		})
		require.True(t, again.Allowed(), "%v", again.Reasons)
		require.True(t, equality.Semantic.DeepEqual(verdict.Pod, again.Pod))
	}
	return verdict
}

func TestReviewSetsDefaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ constraint, spec, pod, container string }{
		"nothing to do": {open, `{}`, `null`, `null`},
		"restricted": {
			restricted, `{}`,
			`{"seLinuxOptions":{"level":"s0:c26,c5"},"fsGroup":1000650000,"seccompProfile":{"type":"RuntimeDefault"}}`,
			`{"capabilities":{"drop":["ALL"]},"runAsUser":1000650000,"runAsNonRoot":true,"allowPrivilegeEscalation":false}`,
		},
		"uid": {
			`{runAsUser: {type: MustRunAs, uid: 7}, seLinuxContext: {type: RunAsAny}}`, `{}`, `null`,
			`{"runAsUser":7,"runAsNonRoot":true}`,
		},
		"uid of root": {
			`{runAsUser: {type: MustRunAs, uid: 0}, seLinuxContext: {type: RunAsAny}}`, `{}`, `null`, `{"runAsUser":0}`,
		},
		"uid that the pod has": {
			`{runAsUser: {type: MustRunAs, uid: 7}, seLinuxContext: {type: RunAsAny}}`,
			`{securityContext: {runAsUser: 7}}`, `{"runAsUser":7}`, `{"runAsNonRoot":true}`,
		},
		"first of an explicit range": {
			`{runAsUser: {type: MustRunAsRange, uidRangeMin: 5, uidRangeMax: 9}, seLinuxContext: {type: RunAsAny}}`,
			`{}`, `null`, `{"runAsUser":5,"runAsNonRoot":true}`,
		},
		"non-root without a uid": {
			`{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: RunAsAny}}`, `{}`, `null`,
			`{"runAsNonRoot":true}`,
		},
		"non-root that the pod says": {
			`{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: RunAsAny}}`,
			`{securityContext: {runAsNonRoot: true}}`, `{"runAsNonRoot":true}`, `null`,
		},
		"non-root by any positive uid": {
			open, `{securityContext: {runAsUser: 1}}`, `{"runAsUser":1}`, `{"runAsNonRoot":true}`,
		},
		"non-root is not overwritten": {
			open, with(`{runAsUser: 1, runAsNonRoot: false}`), `null`, `{"runAsUser":1,"runAsNonRoot":false}`,
		},
		"SELinux options": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs, seLinuxOptions: {user: u, role: r, type: t, level: l}}}`,
			`{}`, `{"seLinuxOptions":{"user":"u","role":"r","type":"t","level":"l"}}`, `null`,
		},
		"the namespace's level": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs, seLinuxOptions: {type: t}}}`, `{}`,
			`{"seLinuxOptions":{"type":"t","level":"s0:c26,c5"}}`, `null`,
		},
		"one group of the namespace": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, fsGroup: {type: MustRunAs}, supplementalGroups: {type: MustRunAs}}`,
			`{}`, `{"supplementalGroups":[1000650000],"fsGroup":1000650000}`, `null`,
		},
		"first of explicit groups": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, fsGroup: {type: MustRunAs, ranges: [{min: 3, max: 4}, {min: 1, max: 2}]}}`,
			`{}`, `{"fsGroup":3}`, `null`,
		},
		"capabilities, sorted": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, defaultAddCapabilities: [Z, A, DROPPED], allowedCapabilities: [B], requiredDropCapabilities: [X, C]}`,
			with(`{capabilities: {add: [B], drop: [DROPPED]}}`), `null`,
			`{"capabilities":{"add":["A","B","Z"],"drop":["C","DROPPED","X"]}}`,
		},
		"drop ALL is not KILL": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, requiredDropCapabilities: [KILL]}`,
			with(`{capabilities: {drop: [ALL]}}`), `null`, `{"capabilities":{"drop":["ALL","KILL"]}}`,
		},
		"capabilities as they were": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, requiredDropCapabilities: [KILL], allowedCapabilities: [B, A]}`,
			with(`{capabilities: {add: [B, A], drop: [KILL]}}`), `null`,
			`{"capabilities":{"add":["B","A"],"drop":["KILL"]}}`,
		},
		"read-only": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, readOnlyRootFilesystem: true}`, `{}`,
			`null`, `{"readOnlyRootFilesystem":true}`,
		},
		"escalation by default": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, defaultAllowPrivilegeEscalation: true}`,
			`{}`, `null`, `{"allowPrivilegeEscalation":true}`,
		},
		"escalation by default, not admin": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, defaultAllowPrivilegeEscalation: false, allowedCapabilities: ["*"]}`,
			with(`{capabilities: {add: [CAP_SYS_ADMIN]}}`), `null`, `{"capabilities":{"add":["CAP_SYS_ADMIN"]}}`,
		},
		"escalation of the privileged": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, allowPrivilegeEscalation: false, allowPrivilegedContainer: true}`,
			with(`{privileged: true}`), `null`, `{"privileged":true}`,
		},
		"first seccomp profile": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, seccompProfiles: ["*", localhost/a.json, runtime/default]}`,
			`{}`, `{"seccompProfile":{"type":"Localhost","localhostProfile":"a.json"}}`, `null`,
		},
		"docker's seccomp profile": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, seccompProfiles: [docker/default]}`, `{}`,
			`{"seccompProfile":{"type":"RuntimeDefault"}}`, `null`,
		},
		"no seccomp profile": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, seccompProfiles: [unconfined]}`, `{}`,
			`{"seccompProfile":{"type":"Unconfined"}}`, `null`,
		},
		"a seccomp profile is kept": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, seccompProfiles: [runtime/default, unconfined]}`,
			`{securityContext: {seccompProfile: {type: Unconfined}}}`, `{"seccompProfile":{"type":"Unconfined"}}`,
			`null`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := review(t, test.constraint, spec(t, test.spec), scc.MayMutate)
			require.True(t, verdict.Allowed(), "%v", verdict.Reasons)
			for want, got := range map[string]any{
				test.pod:       verdict.Pod.Spec.SecurityContext,
				test.container: verdict.Pod.Spec.Containers[0].SecurityContext,
			} {
				text, err := json.Marshal(got)
				require.NoError(t, err)
				require.JSONEq(t, want, string(text))
			}
			if changed := test.pod+test.container != "nullnull"; changed {
				return
			}
			require.True(t, review(t, test.constraint, spec(t, test.spec), scc.MayNotMutate).Allowed())
		})
	}
}

func TestReviewDeniesWhatAConstraintDoesNotAllow(t *testing.T) {
	t.Parallel()
	const freely = `runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}`
	ranged := `{runAsUser: {type: MustRunAsRange}, seLinuxContext: {type: RunAsAny}}`
	for name, test := range map[string]struct{ constraint, spec, field, reason string }{
		"first of the range": {ranged, with(`{runAsUser: 1000650000}`), "", ""},
		"last of the range":  {ranged, with(`{runAsUser: 1000659999}`), "", ""},
		"after the range": {
			ranged, with(`{runAsUser: 1000660000}`), "spec.containers[0].securityContext.runAsUser",
			"1000660000 is not allowed: it must be in 1000650000-1000659999",
		},
		"before the range": {
			ranged, with(`{runAsUser: 1000649999}`), "spec.containers[0].securityContext.runAsUser", "it must be in",
		},
		"the pod's uid counts": {
			ranged, `{securityContext: {runAsUser: 1}}`, "spec.containers[0].securityContext.runAsUser",
			"1 is not allowed",
		},
		"but not if all override": {ranged,
			`{securityContext: {runAsUser: 1}, containers: [{name: a, image: a, securityContext: {runAsUser: 1000650001}}]}`, "", ""},
		"another uid": {
			`{runAsUser: {type: MustRunAs, uid: 7}, seLinuxContext: {type: RunAsAny}}`, with(`{runAsUser: 8}`),
			"spec.containers[0].securityContext.runAsUser", "it must be 7",
		},
		"root where none may be": {
			`{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: RunAsAny}}`, with(`{runAsUser: 0}`),
			"spec.containers[0].securityContext.runAsUser", "must not be root",
		},
		"maybe root": {
			`{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: RunAsAny}}`,
			with(`{runAsUser: 5, runAsNonRoot: false}`), "spec.containers[0].securityContext.runAsNonRoot",
			"must be true",
		},
		"init containers too": {
			ranged,
			`{initContainers: [{name: i, image: i, restartPolicy: Always, securityContext: {runAsUser: 1}}], containers: [{name: a, image: a}]}`,
			"spec.initContainers[0].securityContext.runAsUser", "",
		},
		"ephemeral containers too": {
			ranged,
			`{containers: [{name: a, image: a}], ephemeralContainers: [{name: e, image: e, securityContext: {runAsUser: 1}}]}`,
			"spec.ephemeralContainers[0].securityContext.runAsUser", "",
		},
		"SELinux of the pod": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}}`,
			`{securityContext: {seLinuxOptions: {level: "s0:c1,c2"}}, containers: [{name: a, image: a, securityContext: {seLinuxOptions: {level: "s0:c26,c5"}}}]}`,
			"spec.securityContext.seLinuxOptions.level", `it must be "s0:c26,c5"`,
		},
		"SELinux, other order": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}}`,
			with(`{seLinuxOptions: {level: "s0:c5,c26"}}`), "", "",
		},
		"SELinux, other type": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}}`,
			with(`{seLinuxOptions: {level: "s0:c5,c26", type: t}}`),
			"spec.containers[0].securityContext.seLinuxOptions.type", `"t" is not allowed: it must be ""`,
		},
		"a group out of range": {`{` + freely +
			`, fsGroup: {type: MustRunAs, ranges: [{min: 1, max: 2}, {min: 5, max: 5}]}}`,
			`{securityContext: {fsGroup: 3}}`, "spec.securityContext.fsGroup",
			"3 is not an allowed group: it must be in 1-2, 5-5"},
		"fsGroup is one id": {
			`{` + freely + `, fsGroup: {type: MustRunAs}}`, `{securityContext: {fsGroup: 1000650001}}`,
			"spec.securityContext.fsGroup", "it must be in 1000650000-1000650000",
		},
		"groups are the block": {
			`{` + freely + `, supplementalGroups: {type: MustRunAs}}`,
			`{securityContext: {supplementalGroups: [1000650001, 1000659999]}}`, "", "",
		},
		"one group of two": {
			`{` + freely + `, supplementalGroups: {type: MustRunAs}}`,
			`{securityContext: {supplementalGroups: [1000650001, 1]}}`, "spec.securityContext.supplementalGroups",
			"1 is not an allowed group",
		},
		"an empty list of groups": {
			`{` + freely + `, supplementalGroups: {type: MustRunAs}}`, `{securityContext: {supplementalGroups: []}}`,
			"spec.securityContext.supplementalGroups", "it must have a group",
		},
		"host network": {`{` + freely + `}`, `{hostNetwork: true}`, "spec.hostNetwork", "not allowed"},
		"host PID":     {`{` + freely + `}`, `{hostPID: true}`, "spec.hostPID", "not allowed"},
		"host IPC":     {`{` + freely + `}`, `{hostIPC: true}`, "spec.hostIPC", "not allowed"},
		"host network allowed": {`{` + freely +
			`, allowHostNetwork: true, allowHostPID: true, allowHostIPC: true}`,
			`{hostNetwork: true, hostPID: true, hostIPC: true}`, "", ""},
		"host ports": {
			`{` + freely + `, allowHostNetwork: true}`,
			`{containers: [{name: a, image: a, ports: [{containerPort: 1}, {containerPort: 2, hostPort: 2}]}]}`,
			"spec.containers[0].ports[1].hostPort", "not allowed",
		},
		"host ports allowed": {
			`{` + freely + `, allowHostPorts: true}`,
			`{containers: [{name: a, image: a, ports: [{containerPort: 2, hostPort: 2}]}]}`, "", "",
		},
		"no user namespace": {
			`{` + freely + `, userNamespaceLevel: RequirePodLevel}`, `{}`, "spec.hostUsers", "must be false",
		},
		"a user namespace": {
			`{` + freely + `, userNamespaceLevel: RequirePodLevel}`, `{hostUsers: false}`, "", "",
		},
		"privileged": {
			`{` + freely + `}`, with(`{privileged: true}`), "spec.containers[0].securityContext.privileged",
			"not allowed",
		},
		"a capability": {
			`{` + freely + `, allowedCapabilities: [A, ALL]}`, with(`{capabilities: {add: [B]}}`),
			"spec.containers[0].securityContext.capabilities.add", `"B" is not allowed: only A, ALL may`,
		},
		"a capability's case": {
			`{` + freely + `, allowedCapabilities: [NET_ADMIN]}`, with(`{capabilities: {add: [net_admin]}}`),
			"spec.containers[0].securityContext.capabilities.add", "net_admin",
		},
		"a capability's prefix": {
			`{` + freely + `, allowedCapabilities: [NET_ADMIN]}`, with(`{capabilities: {add: [CAP_NET_ADMIN]}}`),
			"spec.containers[0].securityContext.capabilities.add", "CAP_NET_ADMIN",
		},
		"a default capability": {
			`{` + freely + `, defaultAddCapabilities: [A]}`, with(`{capabilities: {add: [A]}}`), "", "",
		},
		"any capability": {
			`{` + freely + `, allowedCapabilities: ["*"]}`, with(`{capabilities: {add: [B, ALL]}}`), "", "",
		},
		"writable root": {
			`{` + freely + `, readOnlyRootFilesystem: true}`, with(`{readOnlyRootFilesystem: false}`),
			"spec.containers[0].securityContext.readOnlyRootFilesystem", "must be true",
		},
		"escalation": {
			`{` + freely + `, allowPrivilegeEscalation: false}`, with(`{allowPrivilegeEscalation: true}`),
			"spec.containers[0].securityContext.allowPrivilegeEscalation", "must be false",
		},
		"escalation is open": {
			`{` + freely + `, allowPrivilegeEscalation: null}`, with(`{allowPrivilegeEscalation: true}`), "", "",
		},
		"seccomp where none may be": {
			`{` + freely + `}`, `{securityContext: {seccompProfile: {type: RuntimeDefault}}}`,
			"spec.securityContext.seccompProfile", `"runtime/default" is not allowed: none may`,
		},
		"an unknown seccomp profile": {`{` + freely + `, seccompProfiles: [foo]}`, `{}`, "", ""},
		"a safe sysctl, otherwise": {
			`{` + freely + `}`, `{securityContext: {sysctls: [{name: kernel/shm_rmid_forced, value: "1"}]}}`,
			"spec.securityContext.sysctls[0]", "is not allowed",
		},
		"a forbidden one, otherwise": {
			`{` + freely + `, allowedUnsafeSysctls: ["*"], forbiddenSysctls: [kernel.sem]}`,
			`{securityContext: {sysctls: [{name: kernel/sem, value: "1"}]}}`, "spec.securityContext.sysctls[0]",
			"is forbidden",
		},
		"one that the constraint forbids otherwise": {
			`{` + freely + `, allowedUnsafeSysctls: ["*"], forbiddenSysctls: [kernel/sem]}`,
			`{securityContext: {sysctls: [{name: kernel.sem, value: "1"}]}}`, "spec.securityContext.sysctls[0]",
			"is forbidden",
		},
		"a category twice": {
			`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}}`,
			`{securityContext: {seLinuxOptions: {level: "s0:c5,c26,c26"}}}`,
			"spec.securityContext.seLinuxOptions.level", "it must be",
		},
		"a token's namespace twice": {
			`{` + freely + `, volumes: [secret]}`,
			`{volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}, {path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]}}]}`,
			"", "",
		},
		"seccomp of a container": {
			`{` + freely + `, seccompProfiles: [runtime/default]}`, with(`{seccompProfile: {type: Unconfined}}`),
			"spec.containers[0].securityContext.seccompProfile",
			`"unconfined" is not allowed: only runtime/default may`,
		},
		"seccomp of a file": {
			`{` + freely + `, seccompProfiles: [localhost/a]}`,
			with(`{seccompProfile: {type: Localhost, localhostProfile: b}}`),
			"spec.containers[0].securityContext.seccompProfile", "localhost/b",
		},
		"any seccomp": {
			`{` + freely + `, seccompProfiles: ["*"]}`,
			with(`{seccompProfile: {type: Localhost, localhostProfile: b}}`), "", "",
		},
		"a safe sysctl": {
			`{` + freely + `}`, `{securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: "1"}]}}`, "", "",
		},
		"an unsafe sysctl": {
			`{` + freely + `}`, `{securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}}`,
			"spec.securityContext.sysctls[0]", "unsafe sysctl",
		},
		"an allowed sysctl": {
			`{` + freely + `, allowedUnsafeSysctls: ["kernel.msg*"]}`,
			`{securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}}`, "", "",
		},
		"a forbidden sysctl": {
			`{` + freely + `, forbiddenSysctls: ["net.*"]}`,
			`{securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: "1"}]}}`, "spec.securityContext.sysctls[0]",
			"forbidden",
		},
		"hostPath by default": {
			`{` + freely + `}`, `{volumes: [{name: a, hostPath: {path: /}}]}`, "spec.volumes[0]",
			"hostPath volumes are not allowed",
		},
		"hostPath in the list only": {
			`{` + freely + `, volumes: [hostPath, "*"]}`, `{volumes: [{name: a, hostPath: {path: /}}]}`,
			"spec.volumes[0]", "hostPath",
		},
		"hostPath by the flag": {
			`{` + freely + `, volumes: [secret], allowHostDirVolumePlugin: true}`,
			`{volumes: [{name: a, hostPath: {path: /}}, {name: b, secret: {secretName: s}}]}`, "", "",
		},
		"no volumes": {
			`{` + freely + `, volumes: []}`, `{volumes: [{name: a, emptyDir: {}}]}`, "spec.volumes[0]",
			"emptyDir volumes are not allowed: none may",
		},
		"none": {
			`{` + freely + `, volumes: [none]}`, `{volumes: [{name: a, configMap: {name: a}}]}`, "spec.volumes[0]",
			"none may",
		},
		"a volume of another name": {
			`{` + freely + `, volumes: [cephFS, vsphere, storageOS]}`,
			`{volumes: [{name: a, cephfs: {monitors: [a]}}, {name: b, vsphereVolume: {volumePath: a}}, {name: c, storageos: {}}]}`,
			"", "",
		},
		"the injected token": {
			`{` + freely + `, volumes: [secret]}`,
			`{volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]}}]}`,
			"", "",
		},
		"another token": {
			`{` + freely + `, volumes: [secret]}`,
			`{volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: token, audience: vault}}]}}]}`,
			"spec.volumes[0]", "projected volumes are not allowed",
		},
		"flex drivers": {`{` + freely +
			`, volumes: ["*"], allowHostDirVolumePlugin: true, allowedFlexVolumes: [{driver: a}]}`,
			`{volumes: [{name: a, flexVolume: {driver: b}}]}`, "spec.volumes[0].flexVolume.driver",
			`"b" is not allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := review(t, test.constraint, spec(t, test.spec), scc.MayMutate)
			if test.field == "" {
				require.True(t, verdict.Allowed(), "%v", verdict.Reasons)
				return
			}
			require.False(t, verdict.Allowed())
			require.Nil(t, verdict.Pod)
			require.Contains(t, fields(verdict), test.field)
			require.Contains(t, fmt.Sprint(verdict.Reasons), test.reason)
		})
	}
}

// Where only secrets are allowed, a projected volume has no more than the token that admission adds to every pod.
func TestOnlyTheInjectedTokenCountsAsASecret(t *testing.T) {
	t.Parallel()
	const certificate = `configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}`
	for source, volumes := range map[string]string{
		`serviceAccountToken: {path: token}`:                                                  `[configMap]`,
		`serviceAccountToken: {path: other}`:                                                  `[secret]`,
		`secret: {name: a}`:                                                                   `[secret]`,
		`clusterTrustBundle: {name: a, path: token}`:                                          `[secret]`,
		certificate + `, {key: other, path: other}]}`:                                         `[secret]`,
		strings.ReplaceAll(certificate, "kube-root-ca.crt", "other") + `]}`:                   `[secret]`,
		strings.ReplaceAll(certificate, "key: ca.crt", "key: other") + `]}`:                   `[secret]`,
		strings.ReplaceAll(certificate, "path: ca.crt", "path: other") + `]}`:                 `[secret]`,
		`downwardAPI: {items: [{path: other, fieldRef: {fieldPath: metadata.namespace}}]}`:    `[secret]`,
		`downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.labels}}]}`:   `[secret]`,
		`downwardAPI: {items: [{path: namespace, resourceFieldRef: {resource: limits.cpu}}]}`: `[secret]`,
	} {
		p := spec(t, `{volumes: [{name: a, projected: {sources: [{`+source+`}]}}]}`)
		verdict := review(t, `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, volumes: `+volumes+`}`, p,
			scc.MayMutate)
		require.Contains(t, fmt.Sprint(verdict.Reasons), "projected volumes are not allowed", source)
	}
}

func fields(verdict scc.Verdict) []string {
	var found []string
	for _, reason := range verdict.Reasons {
		found = append(found, reason.Field)
	}
	return found
}

func TestReviewTriesConstraintsInOrder(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"anyuid":     `{priority: 10, runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}, fsGroup: {type: RunAsAny}}`,
		"privileged": `{allowPrivilegedContainer: true, allowHostNetwork: true, allowHostPorts: true, allowHostDirVolumePlugin: true, volumes: ["*"], allowedCapabilities: ["*"], seccompProfiles: ["*"], runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}}`,
		"restricted": restricted, "nonroot": `{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: MustRunAs}}`,
		"broken": `{priority: 99, runAsUser: {type: MustRunAs}, seLinuxContext: {type: RunAsAny}}`,
	}
	var constraints []*v1alpha1.SecurityContextConstraints
	for name, text := range all {
		constraints = append(constraints, scc.Defaulted(constraint(t, name, text)))
	}
	scc.Sort(constraints)
	var order []string
	for _, c := range constraints {
		order = append(order, c.Name)
	}
	require.Equal(t, []string{"broken", "anyuid", "restricted", "nonroot", "privileged"}, order)
	of := func(p *corev1.Pod, mode scc.Mode, usable string) scc.Verdict {
		return scc.Review(scc.Request{Pod: p, Mode: mode, NamespaceAnnotations: allocated, Constraints: constraints,
			Usable: func(c *v1alpha1.SecurityContextConstraints, _ string) bool {
				return strings.Contains(" "+usable+" ", " "+c.Name+" ")
			}})
	}
	plain := spec(t, `{serviceAccountName: robot}`)
	verdict := of(plain, scc.MayMutate, "broken restricted anyuid privileged")
	require.Equal(t, "anyuid", verdict.Constraint, "the highest priority")
	require.Equal(t, scc.ServiceAccountSubject, verdict.Subject)
	require.Contains(t, fmt.Sprint(verdict.Reasons), "broken: it cannot be evaluated: runAsUser.uid is missing")
	require.Equal(t, "restricted", of(plain, scc.MayMutate, "restricted privileged").Constraint, "the most restrictive")
	require.Equal(t, "privileged",
		of(spec(t, with(`{privileged: true}`)), scc.MayMutate, "restricted privileged").Constraint)
	require.Equal(t, "privileged", of(plain, scc.MayNotMutate, "restricted privileged nonroot").Constraint,
		"only one that changes nothing")

	refused := of(spec(t, with(`{privileged: true}`)), scc.MayMutate, "restricted")
	require.False(t, refused.Allowed())
	require.Contains(t, fmt.Sprint(refused.Reasons), "constraint privileged: not usable by user")
	require.Contains(t, fmt.Sprint(refused.Reasons),
		"constraint restricted: spec.containers[0].securityContext.privileged: privileged containers are not allowed")

	required := plain.DeepCopy()
	required.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "restricted"}
	require.Equal(t, "restricted", of(required, scc.MayMutate, "anyuid restricted").Constraint)
	require.False(t, of(required, scc.MayMutate, "anyuid").Allowed())
	required.Annotations[v1alpha1.RequiredSCCAnnotation] = "none"
	require.Contains(t, fmt.Sprint(of(required, scc.MayMutate, "anyuid").Reasons),
		"SecurityContextConstraints of this name do not exist")

	// An existing pod may get a debug container, but no other change.
	there := of(plain, scc.MayMutate, "restricted").Pod
	there.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "d"}},
	}
	debugged := of(there, scc.MayMutateEphemeralContainers, "restricted")
	require.True(t, debugged.Allowed(), "%v", debugged.Reasons)
	require.Equal(t, int64(1000650000), *debugged.Pod.Spec.EphemeralContainers[0].SecurityContext.RunAsUser)
	bare := plain.DeepCopy()
	bare.Spec.EphemeralContainers = there.Spec.EphemeralContainers
	require.Contains(t, fmt.Sprint(of(bare, scc.MayMutateEphemeralContainers, "restricted").Reasons),
		"it would have to be changed")
}

func TestReviewSkipsConstraintsThatLackAnAnnotation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		missing     string
		reason      string
	}{
		"none": {nil, v1alpha1.UIDRangeAnnotation, "has no annotation"},
		"no level": {
			map[string]string{v1alpha1.UIDRangeAnnotation: "1/2"}, v1alpha1.MCSAnnotation, "has no annotation",
		},
		"a bad range": {
			map[string]string{v1alpha1.UIDRangeAnnotation: "1"}, "", "neither first/size nor first-last",
		},
		"two ranges": {map[string]string{v1alpha1.UIDRangeAnnotation: "1/2,5/6"}, "", "more than one block"},
		"no ids":     {map[string]string{v1alpha1.UIDRangeAnnotation: "0/0"}, "", "empty"},
		"an empty string": {map[string]string{
			v1alpha1.UIDRangeAnnotation: "1/2", v1alpha1.MCSAnnotation: "s0", v1alpha1.SupplementalGroupsAnnotation: "",
		}, "", "is not a list of ID blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := scc.Review(scc.Request{
				Pod: spec(t, `{}`), NamespaceAnnotations: test.annotations, Usable: everybody,
				Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(constraint(t, "restricted",
					restricted))},
			})
			require.False(t, verdict.Allowed())
			require.Contains(t, fmt.Sprint(verdict.Reasons), test.reason)
			if test.missing == "" {
				require.Nil(t, verdict.Missing)
				return
			}
			require.Equal(t, test.missing, verdict.Missing.Key)
		})
	}
}

// A pod does not wait for user IDs of which the status of the constraint says that there are none.
func TestAPodDoesNotWaitForUserIDsThatDoNotExist(t *testing.T) {
	t.Parallel()
	exhausted := scc.Defaulted(constraint(t, "c", restricted))
	exhausted.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: scc.ReasonPoolExhausted,
	}}
	request := scc.Request{
		Pod: spec(t, `{}`), Usable: everybody, Constraints: []*v1alpha1.SecurityContextConstraints{exhausted},
	}
	verdict := scc.Review(request)
	require.False(t, verdict.Allowed())
	require.ErrorIs(t, verdict.Missing.Why, scc.ErrPoolExhausted)
	require.Equal(t, "constraint c: it cannot be evaluated: the namespace has no annotation policy.nstpl.dev/scc.uid-range: "+
		"every block of user IDs is in use: start the operator with a larger --scc-uid-range", verdict.Reasons[0].String())
	request.NamespaceAnnotations = allocated
	require.Equal(t, "c", scc.Review(request).Constraint, "other namespaces have some")
}

func TestNeedsAllocation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"runAsUser: {type: MustRunAsRange}":          true,
		"runAsUser: {type: MustRunAsServiceAccount}": true,
		"seLinuxContext: {type: MustRunAs}":          true,
		"fsGroup: {type: MustRunAs}":                 true,
		"supplementalGroups: {type: MustRunAs}":      true,

		"runAsUser: {type: MustRunAsRange, uidRangeMin: 10, uidRangeMax: 20}":         false,
		"seLinuxContext: {type: MustRunAs, seLinuxOptions: {level: 's0:c1,c2'}}":      false,
		"fsGroup: {type: MustRunAs, ranges: [{min: 1, max: 2}]}":                      false,
		"{runAsUser: {type: MustRunAsNonRoot}, supplementalGroups: {type: RunAsAny}}": false,
	} {
		tested := constraint(t, "c", text)
		if tested.RunAsUser.Type == "" {
			tested.RunAsUser.Type = v1alpha1.RunAsAny
		}
		if tested.SELinuxContext.Type == "" {
			tested.SELinuxContext.Type = v1alpha1.RunAsAny
		}
		require.Equal(t, want, scc.NeedsAllocation(scc.Defaulted(tested)), text)
	}
}

// A pod that comes before its namespace's allocation is not admitted by what is laxer, and is by what comes before
// anyway.
func TestReviewWaitsForThePreferredConstraint(t *testing.T) {
	t.Parallel()
	of := func(annotations map[string]string, texts ...string) scc.Verdict {
		request := scc.Request{Pod: spec(t, `{}`), NamespaceAnnotations: annotations, Usable: everybody}
		for i, text := range texts {
			request.Constraints = append(request.Constraints, scc.Defaulted(constraint(t, fmt.Sprint("c", i), text)))
		}
		return scc.Review(request)
	}
	early := of(nil, restricted, open)
	require.False(t, early.Allowed())
	require.NotNil(t, early.Missing)
	require.Equal(t,
		"it would admit the pod, but a preferred constraint is still waiting for the namespace's annotation policy.nstpl.dev/scc.uid-range",
		early.Reasons[1].Message)
	const privileged = `{allowPrivilegedContainer: true, runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}}`
	never := scc.Review(scc.Request{
		Pod: spec(t, with(`{privileged: true}`)), Usable: everybody,
		Constraints: []*v1alpha1.SecurityContextConstraints{
			scc.Defaulted(constraint(t, "first", restricted)), scc.Defaulted(constraint(t, "second", privileged)),
		},
	})
	require.Equal(t, "second", never.Constraint, "the first would refuse it whatever the namespace is given")
	first := of(nil, open, restricted)
	require.Equal(t, "c0", first.Constraint)
	require.Nil(t, first.Missing)
	require.Equal(t, "c0", of(allocated, restricted, open).Constraint)
	skipped := of(map[string]string{v1alpha1.UIDRangeAnnotation: "1"}, restricted, open)
	require.Equal(t, "c1", skipped.Constraint, "it does not wait for an allocation that will not be made")
	for _, broken := range []string{
		`{runAsUser: {type: MustRunAs, uid: -1}, seLinuxContext: {type: RunAsAny}}`,
		`{runAsUser: {type: MustRunAsRange, uidRangeMin: 1, uidRangeMax: 4294967296}, seLinuxContext: {type: RunAsAny}}`,
		`{runAsUser: {type: MustRunAsRange, uidRangeMin: 1}, seLinuxContext: {type: RunAsAny}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAsLevel}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, fsGroup: {type: MustRunAsGroup}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, fsGroup: {type: MustRunAs, ranges: [{min: 1, max: 4294967297}]}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, fsGroup: {type: MustRunAs, ranges: [{min: -1, max: 1}]}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, supplementalGroups: {type: MustRunAs, ranges: [{min: 2, max: 1}]}}`,
		`{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, seccompProfiles: [localhost/]}`,
	} {
		require.Equal(t, "c1", of(allocated, broken, open).Constraint, broken)
	}
}

// What a newer Kubernetes has of volumes gets lost as the pod is read, and is only for those who may have all.
func TestReviewOfUnknownVolumes(t *testing.T) {
	t.Parallel()
	fields := map[string]any{}
	require.NoError(t,
		yaml.Unmarshal([]byte(`{spec: {volumes: [{name: a, emptyDir: {}}, {name: b, brandNew: {}}]}}`), &fields))
	unknown := scc.UnknownFieldsOf(fields)
	require.Equal(t, scc.UnknownFields{Volumes: []string{"spec.volumes[1].brandNew"}}, unknown)
	for volumes, allowed := range map[string]bool{"[emptyDir]": false, `["*"]`: true} {
		text := `{allowHostDirVolumePlugin: true, runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, volumes: ` + volumes + `}`
		verdict := scc.Review(scc.Request{
			Pod: spec(t, `{volumes: [{name: a, emptyDir: {}}, {name: b}]}`), Unknown: unknown, Usable: everybody,
			Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(constraint(t, "it", text))},
		})
		require.Equal(t, allowed, verdict.Allowed(), "%s: %v", volumes, verdict.Reasons)
	}
}

// A field of a security context of a newer Kubernetes is only for those who may run privileged containers.
func TestReviewOfUnknownFieldsOfSecurityContexts(t *testing.T) {
	t.Parallel()
	fields := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`{spec: {
		securityContext: {runAsUser: 7, newOfPod: true, absent: null},
		initContainers: [{name: i, securityContext: {newOfInit: {}}}],
		containers: [{name: a, securityContext: {privileged: false, capabilities: {add: []}, windowsOptions: {hostProcess: false}}},
			{securityContext: {newOne: 1, seccompProfile: {type: Unconfined, newBelow: x}}}],
		ephemeralContainers: [{name: e, securityContext: {newOfEphemeral: x}}]}}`), &fields))
	unknown := scc.UnknownFieldsOf(fields)
	require.Equal(t, scc.UnknownFields{SecurityContexts: []string{
		"spec.securityContext.newOfPod", "spec.initContainers[0].securityContext.newOfInit",
		"spec.containers[1].securityContext.newOne", "spec.containers[1].securityContext.seccompProfile.newBelow",
		"spec.ephemeralContainers[0].securityContext.newOfEphemeral",
	}}, unknown)
	for privileged, allowed := range map[string]bool{"false": false, "true": true} {
		text := `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}, allowPrivilegedContainer: ` + privileged + `}`
		verdict := scc.Review(scc.Request{
			Pod: spec(t, `{}`), Unknown: unknown, Usable: everybody,
			Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(constraint(t, "it", text))},
		})
		require.Equal(t, allowed, verdict.Allowed(), "%s: %v", privileged, verdict.Reasons)
	}
}

func TestParseBlocks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1000/10": "[{1000 1009}]", "1000-1009": "[{1000 1009}]", "1/1, 5-6": "[{1 1} {5 6}]",
		"2147483647/1": "[{2147483647 2147483647}]", "0-0": "[{0 0}]",
		"": "", "1000": "", "1000-": "", "/5": "", "10-5": "", "0/0": "", "1000/10abc": "", "1/2,": "",
		"4294967296/1": "", "2147483647/2": "",
		"-1/5": "", "1 /2": "", "99999999999999999999/1": "", "1/9223372036854775807": "", "1/2/3": "",
	} {
		blocks, err := scc.ParseBlocks(text)
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, fmt.Sprint(blocks), text)
	}
}

// However odd a pod is, what a constraint makes of it is admitted by it as it is, and nothing that was set is changed.
func FuzzReview(f *testing.F) {
	f.Add(`{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["B"],"drop":[]},"runAsUser":0}}]}`,
		restricted)
	f.Add(`{"securityContext":{"supplementalGroups":[],"seLinuxOptions":{}},"hostUsers":false}`, open)
	f.Add(`{"ephemeralContainers":[{"name":"x"}],"volumes":[{"name":"a"},{"projected":{}}]}`,
		`{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: MustRunAs}}`)
	f.Fuzz(func(t *testing.T, podSpec, text string) {
		p, c := &corev1.Pod{}, &v1alpha1.SecurityContextConstraints{}
		if json.Unmarshal([]byte(podSpec), &p.Spec) != nil || yaml.Unmarshal([]byte(text), c) != nil {
			return
		}
		c.Name = "it"
		request := scc.Request{
			Pod: p, NamespaceAnnotations: allocated, Usable: everybody,
			Constraints: []*v1alpha1.SecurityContextConstraints{scc.Defaulted(c)},
		}
		before := p.DeepCopy()
		verdict := scc.Review(request)
		require.Equal(t, before, p)
		require.Equal(t, verdict.Allowed(), len(verdict.Reasons) == 0)
		if !verdict.Allowed() {
			return
		}
		request.Pod, request.Mode = verdict.Pod, scc.MayNotMutate
		require.True(t, scc.Review(request).Allowed())
	})
}

func BenchmarkReviewThirtyConstraints(b *testing.B) {
	t := &testing.T{}
	var constraints []*v1alpha1.SecurityContextConstraints
	for i := range 30 {
		constraints = append(constraints, scc.Defaulted(constraint(t, fmt.Sprint("c-", i), restricted)))
	}
	p := spec(t, with(`{privileged: true}`))
	b.ReportAllocs()
	for b.Loop() {
		if scc.Review(scc.Request{
			Pod: p, NamespaceAnnotations: allocated, Constraints: constraints, Usable: everybody,
		}).Allowed() {
			b.Fatal("admitted")
		}
	}
}
