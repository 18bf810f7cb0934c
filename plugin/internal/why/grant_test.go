package why

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
			"kubectl create clusterrole nstpl-use-payments --verb=use --resource=policyspaces.policy.nstpl.dev " +
				"--resource-name=payments\n" +
				"kubectl create clusterrolebinding nstpl-use-payments-dev --clusterrole=nstpl-use-payments --user=dev",
		},
		"two policy spaces": {
			"user dev may not put namespaces into policyspace a or take them out of policyspace b: ask for the verb use on " +
				"policyspaces/a and policyspaces/b in the API group policy.nstpl.dev (nstpl:policyspace-use)",
			"the verb use on policyspaces/a and policyspaces/b",
			"kubectl create clusterrole nstpl-use --verb=use --resource=policyspaces.policy.nstpl.dev " +
				"--resource-name=a --resource-name=b\n" +
				"kubectl create clusterrolebinding nstpl-use-dev --clusterrole=nstpl-use --user=dev",
		},
		"a ServiceAccount, all templates": {
			"user system:serviceaccount:ci:deploy needs the verb use on all namespacetemplates in the API group " +
				"policy.nstpl.dev (nstpl:template-use)",
			"the verb use on namespacetemplates",
			"kubectl create clusterrole nstpl-use --verb=use --resource=namespacetemplates.policy.nstpl.dev\n" +
				"kubectl create clusterrolebinding nstpl-use-system-serviceaccount-ci-deploy --clusterrole=nstpl-use " +
				"--serviceaccount=ci:deploy",
		},
		"a user whose name has characters of shells": {
			"user it's;me may not exempt namespaces from NamespaceTemplate a: ask for the verb exempt on " +
				"namespacetemplates/a in the API group policy.nstpl.dev (nstpl:exemption)",
			"the verb exempt on namespacetemplates/a",
			"kubectl create clusterrole nstpl-exempt-a --verb=exempt --resource=namespacetemplates.policy.nstpl.dev " +
				"--resource-name=a\n" +
				`kubectl create clusterrolebinding nstpl-exempt-a-it-s-me --clusterrole=nstpl-exempt-a --user='it'\''s;me'`,
		},
		"namespaces": {
			"user dev may not end or prolong the initialization of namespace a (label b): ask for the verb initialize on " +
				"namespaces (nstpl:initialization)",
			"the verb initialize on namespaces",
			"kubectl create clusterrole nstpl-initialize --verb=initialize --resource=namespaces\n" +
				"kubectl create clusterrolebinding nstpl-initialize-dev --clusterrole=nstpl-initialize --user=dev",
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
