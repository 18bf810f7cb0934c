package scc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// standard returns a constraint that allows everything but what a standard denies.
func standard(name v1alpha1.PodSecurityStandard) string {
	text := `{allowPrivilegedContainer: true, runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}`
	if name != "" {
		text += ", podSecurityStandard: " + string(name)
	}
	return text + "}"
}

// The decisions are those of the Pod Security Standards of Kubernetes 1.35 and later. Each row has the field that the
// standards deny, or none.
func TestPodSecurityStandard(t *testing.T) {
	t.Parallel()
	withProbe := func(probe string) string { return `{containers: [{name: a, image: a, ` + probe + `}]}` }
	const appArmor = "container.apparmor.security.beta.kubernetes.io/a"
	for name, test := range map[string]struct{ pod, baseline, restricted string }{
		"nothing":              {pod: `{spec: {containers: [{name: a, image: a}]}}`},
		"a probe of the pod":   {pod: `{spec: ` + withProbe(`livenessProbe: {httpGet: {port: 80}}`) + `}`},
		"an empty host":        {pod: `{spec: ` + withProbe(`livenessProbe: {httpGet: {port: 80, host: ""}}`) + `}`},
		"a command as a probe": {pod: `{spec: ` + withProbe(`livenessProbe: {exec: {command: [a]}}`) + `}`},
		"liveness, HTTP": {
			`{spec: ` + withProbe(`livenessProbe: {httpGet: {port: 80, host: 169.254.169.254}}`) + `}`,
			"spec.containers[0].livenessProbe.httpGet.host", "spec.containers[0].livenessProbe.httpGet.host",
		},
		"readiness, TCP": {
			`{spec: ` + withProbe(`readinessProbe: {tcpSocket: {port: 80, host: 127.0.0.1}}`) + `}`,
			"spec.containers[0].readinessProbe.tcpSocket.host", "spec.containers[0].readinessProbe.tcpSocket.host",
		},
		"startup, of a sidecar": {
			`{spec: {initContainers: [{name: s, image: a, restartPolicy: Always,
				startupProbe: {httpGet: {port: 80, host: a}}}], containers: [{name: a, image: a}]}}`,
			"spec.initContainers[0].startupProbe.httpGet.host", "spec.initContainers[0].startupProbe.httpGet.host",
		},
		"after the start": {
			`{spec: ` + withProbe(`lifecycle: {postStart: {httpGet: {port: 80, host: a}}}`) + `}`,
			"spec.containers[0].lifecycle.postStart.httpGet.host", "spec.containers[0].lifecycle.postStart.httpGet.host",
		},
		"before the stop": {
			`{spec: ` + withProbe(`lifecycle: {preStop: {tcpSocket: {port: 80, host: a}}}`) + `}`,
			"spec.containers[0].lifecycle.preStop.tcpSocket.host", "spec.containers[0].lifecycle.preStop.tcpSocket.host",
		},
		"of a Windows pod": {
			`{spec: {os: {name: windows}, containers: [{name: a, image: a, livenessProbe: {httpGet: {port: 80, host: a}}}]}}`,
			"spec.containers[0].livenessProbe.httpGet.host", "spec.containers[0].livenessProbe.httpGet.host",
		},
		"of an ephemeral container": {
			`{spec: {containers: [{name: a, image: a}], ephemeralContainers: [{name: e, image: a,
				readinessProbe: {httpGet: {port: 80, host: a}}}]}}`,
			"spec.ephemeralContainers[0].readinessProbe.httpGet.host",
			"spec.ephemeralContainers[0].readinessProbe.httpGet.host",
		},
		"AppArmor, the default": {
			pod: `{spec: {securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: a, image: a}]}}`,
		},
		"AppArmor, a profile of the node": {
			pod: `{spec: ` + with(`{appArmorProfile: {type: Localhost, localhostProfile: a}}`) + `}`,
		},
		"AppArmor, none, for the pod": {
			`{spec: {securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: a, image: a}]}}`,
			"spec.securityContext.appArmorProfile.type", "spec.securityContext.appArmorProfile.type",
		},
		"AppArmor, none, for a container": {
			`{spec: ` + with(`{appArmorProfile: {type: Unconfined}}`) + `}`,
			"spec.containers[0].securityContext.appArmorProfile.type",
			"spec.containers[0].securityContext.appArmorProfile.type",
		},
		"AppArmor, none, for a container of a privileged pod": {
			`{spec: ` + with(`{privileged: true, appArmorProfile: {type: Unconfined}}`) + `}`,
			"spec.containers[0].securityContext.appArmorProfile.type",
			"spec.containers[0].securityContext.appArmorProfile.type",
		},
		"AppArmor, allowed by annotation": {
			pod: `{metadata: {annotations: {` + appArmor + `: localhost/a}}, spec: {containers: [{name: a, image: a}]}}`,
		},
		"AppArmor, the default by annotation": {
			pod: `{metadata: {annotations: {` + appArmor + `: runtime/default}}, spec: {containers: [{name: a, image: a}]}}`,
		},
		"AppArmor, none by annotation": {
			`{metadata: {annotations: {` + appArmor + `: unconfined}}, spec: {containers: [{name: a, image: a}]}}`,
			"metadata.annotations[" + appArmor + "]", "metadata.annotations[" + appArmor + "]",
		},
		"procMount, the default": {pod: `{spec: ` + with(`{procMount: Default}`) + `}`},
		"procMount, unmasked": {
			`{spec: ` + with(`{procMount: Unmasked}`) + `}`,
			"spec.containers[0].securityContext.procMount", "spec.containers[0].securityContext.procMount",
		},
		"procMount, unmasked, with the users of the host": {
			`{spec: {hostUsers: true, containers: [{name: a, image: a, securityContext: {procMount: Unmasked}}]}}`,
			"spec.containers[0].securityContext.procMount", "spec.containers[0].securityContext.procMount",
		},
		"procMount, unmasked, with users of its own": {
			pod:        `{spec: {hostUsers: false, containers: [{name: a, image: a, securityContext: {procMount: Unmasked}}]}}`,
			restricted: "spec.containers[0].securityContext.procMount",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for standardName, field := range map[v1alpha1.PodSecurityStandard]string{
				"": "", v1alpha1.StandardBaseline: test.baseline, v1alpha1.StandardRestricted: test.restricted,
			} {
				verdict := review(t, standard(standardName), pod(t, test.pod), scc.MayMutate)
				require.Equal(t, field == "", verdict.Allowed(), "%q: %v", standardName, verdict.Reasons)
				if field != "" {
					require.Len(t, verdict.Reasons, 1)
					require.Equal(t, field, verdict.Reasons[0].Field)
					require.Contains(t, verdict.Reasons[0].Message, "podSecurityStandard is "+string(standardName))
				}
			}
		})
	}
}

// The constraint that allows less comes first, whatever the names are.
func TestConstraintsThatAllowLessComeFirst(t *testing.T) {
	t.Parallel()
	const freely = `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}`
	for less, more := range map[string]string{
		``:                                  `, allowHostNetwork: true`,
		`, allowHostNetwork: true`:          `, allowHostPorts: true`,
		`, allowHostPorts: true`:            `, allowPrivilegedContainer: true`,
		`, allowedCapabilities: [CHOWN]`:    `, allowedCapabilities: ["*"]`,
		`, requiredDropCapabilities: [ALL]`: `, requiredDropCapabilities: [CHOWN]`,
		`, volumes: [secret]`:               `, volumes: [csi]`,
		`, volumes: [csi]`:                  `, allowHostDirVolumePlugin: true`,
	} {
		constraints := []*v1alpha1.SecurityContextConstraints{
			scc.Defaulted(constraint(t, "a-more", freely+more+`}`)), scc.Defaulted(constraint(t, "b-less", freely+less+`}`)),
		}
		scc.Sort(constraints)
		require.Equal(t, "b-less", constraints[0].Name, more)
	}
}

// A constraint that judges more fields comes before one that is equal otherwise.
func TestConstraintsWithAStandardComeFirst(t *testing.T) {
	t.Parallel()
	sorted := []*v1alpha1.SecurityContextConstraints{
		scc.Defaulted(constraint(t, "a", standard(""))), scc.Defaulted(constraint(t, "b", standard("Baseline"))),
		scc.Defaulted(constraint(t, "c", standard("Restricted"))),
	}
	scc.Sort(sorted)
	require.Equal(t, []string{"c", "b", "a"}, []string{sorted[0].Name, sorted[1].Name, sorted[2].Name})
	require.ErrorContains(t, scc.Check(constraint(t, "d", standard("Privileged"))), "it must be Baseline or Restricted")
}
