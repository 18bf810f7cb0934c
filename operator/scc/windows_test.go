package scc_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/scc"
)

// A Windows pod is denied what a Linux pod is denied, and is given nothing that the API server rejects on Windows.
func TestReviewOfWindowsPods(t *testing.T) {
	t.Parallel()
	const (
		freely  = `runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}`
		windows = `{os: {name: windows}`
		nonRoot = `{runAsUser: {type: MustRunAsNonRoot}, seLinuxContext: {type: RunAsAny}}`
	)
	demanding := `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: MustRunAs}, fsGroup: {type: MustRunAs}, supplementalGroups: {type: MustRunAs},
		readOnlyRootFilesystem: true, requiredDropCapabilities: [ALL], defaultAddCapabilities: [A], seccompProfiles: [runtime/default],
		allowPrivilegeEscalation: false, userNamespaceLevel: RequirePodLevel}`
	container := func(kind, options string) string {
		return kind + `: [{name: x, image: a, securityContext: {windowsOptions: ` + options + `}}]`
	}
	const others = `containers: [{name: a, image: a}], `
	for name, test := range map[string]struct{ constraint, spec, field, container string }{
		"nothing of Linux is set": {demanding, `{}`, "", `null`},
		"not an administrator":    {nonRoot, `{}`, "", `{"runAsNonRoot":true}`},
		"by a range":              {restricted, `{}`, "", `{"runAsNonRoot":true}`},
		"that the pod says":       {nonRoot, `{securityContext: {runAsNonRoot: true}}`, "", `null`},
		"maybe an administrator": {
			restricted, with(`{runAsNonRoot: false}`), "spec.containers[0].securityContext.runAsNonRoot", "",
		},
		"maybe one by the pod": {
			restricted, `{securityContext: {runAsNonRoot: false}}`, "spec.containers[0].securityContext.runAsNonRoot",
			"",
		},
		"root by a uid": {
			`{runAsUser: {type: MustRunAs, uid: 0}, seLinuxContext: {type: RunAsAny}}`, `{}`, "", `null`,
		},
		"host process": {
			`{` + freely + `, allowHostNetwork: true}`,
			`{hostNetwork: true, ` + container("containers", `{hostProcess: true}`) + `}`,
			"spec.containers[0].securityContext.windowsOptions.hostProcess", "",
		},
		"host process of the pod": {
			`{` + freely + `}`, `{securityContext: {windowsOptions: {hostProcess: true}}}`,
			"spec.securityContext.windowsOptions.hostProcess", "",
		},
		"of a pod that all override": {
			`{` + freely + `}`,
			`{securityContext: {windowsOptions: {hostProcess: true}}, ` +
				container("containers", `{hostProcess: false}`) + `}`,
			"spec.securityContext.windowsOptions.hostProcess", "",
		},
		"of an init container": {
			`{` + freely + `}`, `{` + others + container("initContainers", `{hostProcess: true}`) + `}`,
			"spec.initContainers[0].securityContext.windowsOptions.hostProcess", "",
		},
		"of an ephemeral container": {
			`{` + freely + `}`, `{` + others + container("ephemeralContainers", `{hostProcess: true}`) + `}`,
			"spec.ephemeralContainers[0].securityContext.windowsOptions.hostProcess", "",
		},
		"host process allowed": {
			`{` + freely + `, allowPrivilegedContainer: true}`,
			`{` + container("containers", `{hostProcess: true}`) + `}`, "", `{"windowsOptions":{"hostProcess":true}}`,
		},
		"no host process": {
			`{` + freely + `}`, `{` + container("containers", `{hostProcess: false}`) + `}`, "",
			`{"windowsOptions":{"hostProcess":false}}`,
		},
		"its administrator": {
			restricted, `{` + container("containers", `{runAsUserName: ContainerAdministrator}`) + `}`,
			"spec.containers[0].securityContext.windowsOptions.runAsUserName", "",
		},
		"in other letters, by a domain": {
			nonRoot, `{` + container("containers", `{runAsUserName: 'User Manager\CONTAINERADMINISTRATOR'}`) + `}`,
			"spec.containers[0].securityContext.windowsOptions.runAsUserName", "",
		},
		"the system": {
			nonRoot, `{securityContext: {windowsOptions: {runAsUserName: 'NT AUTHORITY\SYSTEM'}}}`,
			"spec.containers[0].securityContext.windowsOptions.runAsUserName", "",
		},
		"where any user may run": {
			`{` + freely + `}`, `{` + container("containers", `{runAsUserName: ContainerAdministrator}`) + `}`, "",
			`{"windowsOptions":{"runAsUserName":"ContainerAdministrator"}}`,
		},
		"a user": {
			nonRoot, `{` + container("containers", `{runAsUserName: ContainerUser}`) + `}`, "",
			`{"windowsOptions":{"runAsUserName":"ContainerUser"},"runAsNonRoot":true}`,
		},
		"host network": {`{` + freely + `}`, `{hostNetwork: true}`, "spec.hostNetwork", ""},
		"host ports": {
			`{` + freely + `}`, `{containers: [{name: a, image: a, ports: [{containerPort: 1, hostPort: 2}]}]}`,
			"spec.containers[0].ports[0].hostPort", "",
		},
		"hostPath": {
			`{` + freely + `}`, `{volumes: [{name: a, hostPath: {path: 'C:\'}}]}`, "spec.volumes[0]", "",
		},
		"a volume that is not listed": {
			`{` + freely + `, volumes: [secret]}`, `{volumes: [{name: a, nfs: {server: a, path: /}}]}`,
			"spec.volumes[0]", "",
		},
		"privileged": {
			`{` + freely + `}`, with(`{privileged: true}`), "spec.containers[0].securityContext.privileged", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := review(t, test.constraint, spec(t, strings.Replace(windows+", "+test.spec[1:], ", }", "}", 1)),
				scc.MayMutate)
			if test.field != "" {
				require.Contains(t, fields(verdict), test.field, "%v", verdict.Reasons)
				return
			}
			require.True(t, verdict.Allowed(), "%v", verdict.Reasons)
			text, err := json.Marshal(verdict.Pod.Spec.Containers[0].SecurityContext)
			require.NoError(t, err)
			require.JSONEq(t, test.container, string(text))
		})
	}
}

// A pod that does not declare its operating system is judged as a Linux pod, and by its Windows options.
func TestReviewOfUndeclaredWindowsPods(t *testing.T) {
	t.Parallel()
	for _, options := range []string{`{hostProcess: true}`, `{runAsUserName: ContainerAdministrator}`} {
		for _, text := range []string{
			with(`{windowsOptions: ` + options + `}`),
			`{nodeSelector: {kubernetes.io/os: windows}, securityContext: {windowsOptions: ` + options + `}}`,
		} {
			verdict := review(t, restricted, spec(t, text), scc.MayMutate)
			require.False(t, verdict.Allowed(), text)
			require.Contains(t, fmt.Sprint(verdict.Reasons), "windowsOptions")
		}
	}
	plain := review(t, restricted, spec(t, `{nodeSelector: {kubernetes.io/os: windows}}`), scc.MayMutate)
	require.NotNil(t, plain.Pod.Spec.Containers[0].SecurityContext.RunAsUser)
}
