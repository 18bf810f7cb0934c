package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A large exponent takes minutes and much memory, in the API server's rules, too, so the texts are of those that are
// just too large.
func TestQuantitiesWithLargeExponentsAreRejected(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1e-100", "1e100", "1E+100", ".5e-100"} {
		space := fmt.Sprintf("{apiVersion: policy.nstpl.dev/v1alpha1, kind: PolicySpace, metadata: {name: quantities}, "+
			"spec: {quota: {hard: {cpu: %q}}}}", text)
		require.ErrorContains(t, tryToCreate(t, space), "spec.quota.hard.cpu in body should match", text)

		// The API server evaluates this rule although the text does not match the pattern.
		template := fmt.Sprintf("{apiVersion: policy.nstpl.dev/v1alpha1, kind: NamespaceTemplate, metadata: {name: quantities}, "+
			"spec: {namespaces: {labelSelector: {matchLabels: {a: b}}}, "+
			"sources: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: a, maxSize: %q}]}}", text)
		err := tryToCreate(t, template)
		require.ErrorContains(t, err, "spec.sources[0].maxSize in body should match", text)
		require.ErrorContains(t, err, "must be a quantity of at most 1Mi", text)
	}
	require.NoError(t, tryToCreate(t, "{apiVersion: policy.nstpl.dev/v1alpha1, kind: PolicySpace, metadata: {name: quantities}, "+
		`spec: {quota: {hard: {cpu: ".5", memory: "1.5e9", pods: "1e3", requests.cpu: 2500m, requests.memory: 9Ei}}}}`))
}

// No client in Go reads a time in lower case, nor any list that has one: with it, neither the operator nor its
// successor could read exemptions.
func TestTimesInLowerCaseAreRejected(t *testing.T) {
	t.Parallel()
	exemption := func(expires string) string {
		return fmt.Sprintf("{apiVersion: policy.nstpl.dev/v1alpha1, kind: TemplateExemption, "+
			"metadata: {name: times, namespace: default}, spec: {template: a, reason: b, expires: %q}}", expires)
	}
	for _, text := range []string{
		"2030-01-31t18:00:00z", "2030-01-31T18:00:00z", "2030-01-31T18:00:00ZTx", "2030-01-31T18:00:00+24:00",
		"2030-01-31T18:00:00,5Z",
	} {
		require.ErrorContains(t, tryToCreate(t, exemption(text)), "spec.expires in body should match", text)
	}
	for _, text := range []string{"2030-01-31T18:00:00Z", "2030-01-31T18:00:00.123456Z", "2030-01-31T23:59:59-11:30"} {
		require.NoError(t, tryToCreate(t, exemption(text)), text)
	}
}
