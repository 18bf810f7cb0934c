package why

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// clusterRole begins the commands that grant a permission.
const clusterRole = "echo '{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, "

func TestTheGrantInAMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message  string
		what     string
		commands string
	}{
		"a policy space": {
			"user dev may not put namespaces into policyspace payments: ask for the verb use on policyspaces/payments in " +
				"the API group policy.nstpl.dev (nstpl:policyspace-use)",
			"the verb use on policyspaces/payments",
			clusterRole + "metadata: {name: nstpl-use-policyspaces-payments}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [policyspaces], " +
				"resourceNames: [payments], verbs: [use]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-use-policyspaces-payments-dev " +
				"--clusterrole=nstpl-use-policyspaces-payments --user=dev",
		},
		"two policy spaces": {
			"user dev may not put namespaces into policyspace a or take them out of policyspace b: ask for the verb use on " +
				"policyspaces/a and policyspaces/b in the API group policy.nstpl.dev (nstpl:policyspace-use)",
			"the verb use on policyspaces/a and policyspaces/b",
			clusterRole + "metadata: {name: nstpl-use-policyspaces-a:b}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [policyspaces], " +
				"resourceNames: [a, b], verbs: [use]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-use-policyspaces-a:b-dev " +
				"--clusterrole=nstpl-use-policyspaces-a:b --user=dev",
		},
		"a template whose name has a dot": {
			"user dev may not exempt namespaces from NamespaceTemplate a.b: ask for the verb exempt on " +
				"namespacetemplates/a.b in the API group policy.nstpl.dev (nstpl:exemption)",
			"the verb exempt on namespacetemplates/a.b",
			clusterRole + "metadata: {name: nstpl-exempt-namespacetemplates-a.b}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [namespacetemplates], " +
				"resourceNames: [a.b], verbs: [exempt]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-exempt-namespacetemplates-a.b-dev " +
				"--clusterrole=nstpl-exempt-namespacetemplates-a.b --user=dev",
		},
		"names that YAML does not read as text": {
			"user dev may not put namespaces into policyspace 123 or take them out of policyspace true: ask for the verb use " +
				"on policyspaces/123 and policyspaces/true in the API group policy.nstpl.dev (nstpl:policyspace-use)",
			"the verb use on policyspaces/123 and policyspaces/true",
			clusterRole + "metadata: {name: nstpl-use-policyspaces-123:true}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [policyspaces], " +
				"resourceNames: [\"123\", \"true\"], verbs: [use]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-use-policyspaces-123:true-dev " +
				"--clusterrole=nstpl-use-policyspaces-123:true --user=dev",
		},
		"a ServiceAccount, all templates": {
			"user system:serviceaccount:ci:deploy needs the verb use on all namespacetemplates in the API group " +
				"policy.nstpl.dev (nstpl:template-use)",
			"the verb use on namespacetemplates",
			clusterRole + "metadata: {name: nstpl-use-namespacetemplates}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [namespacetemplates], " +
				"verbs: [use]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-use-namespacetemplates-system-serviceaccount-ci-deploy " +
				"--clusterrole=nstpl-use-namespacetemplates --serviceaccount=ci:deploy",
		},
		"a user whose name has characters of shells": {
			"user it's;me may not exempt namespaces from NamespaceTemplate a: ask for the verb exempt on " +
				"namespacetemplates/a in the API group policy.nstpl.dev (nstpl:exemption)",
			"the verb exempt on namespacetemplates/a",
			clusterRole + "metadata: {name: nstpl-exempt-namespacetemplates-a}, " +
				"rules: [{apiGroups: [\"policy.nstpl.dev\"], resources: [namespacetemplates], " +
				"resourceNames: [a], verbs: [exempt]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-exempt-namespacetemplates-a-it-s-me " +
				"--clusterrole=nstpl-exempt-namespacetemplates-a --user='it'\\''s;me'",
		},
		"namespaces": {
			"user dev may not end or prolong the initialization of namespace a (label b): ask for the verb initialize on " +
				"namespaces (nstpl:initialization)",
			"the verb initialize on namespaces",
			clusterRole + "metadata: {name: nstpl-initialize-namespaces}, " +
				"rules: [{apiGroups: [\"\"], resources: [namespaces], " +
				"verbs: [initialize]}]}' | kubectl apply -f -\n" +
				"kubectl create clusterrolebinding nstpl-initialize-namespaces-dev " +
				"--clusterrole=nstpl-initialize-namespaces --user=dev",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, isNamed := grantIn(test.message)
			require.True(t, isNamed)
			require.Equal(t, test.what, got.what())
			require.Equal(t, test.commands, got.commands())
		})
	}
	for _, message := range []string{"user dev may not do this", "ask for the verb use on policyspaces/a", ""} {
		_, isNamed := grantIn(message)
		require.False(t, isNamed, message)
	}
}
