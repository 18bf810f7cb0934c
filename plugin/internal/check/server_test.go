package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestVersionsOfTheServer(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		status                    Status
		message, remedy, manifest string
	}{
		"v1.36.3":      {OK, "v1.36.3 is supported", "", "install.yaml"},
		"v1.40.0-rc.1": {OK, "v1.40.0-rc.1 is supported", "", "install.yaml"},
		"v1.35.4":      {OK, "v1.35.4 is supported", "", "install-before-1.36.yaml"},
		"v1.34.0+k3s1": {OK, "is supported", "", "install-before-1.36.yaml"},
		"v1.33.9":      {Failure, "v1.33.9 is older than 1.34", "upgrade the cluster", "install-before-1.36.yaml"},
		"odd":          {Unknown, `version "odd"`, "1.34 or later", "install.yaml"},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := installed(t)
			c.server.Version = version
			requireResult(t, []Result{checkServer(&c)}, want.status, want.message, want.remedy)
			require.Equal(t, want.manifest, manifestFor(version))
		})
	}
}

func TestServedAPIs(t *testing.T) {
	t.Parallel()
	all := func(t *testing.T, version string) *before {
		t.Helper()
		b := &before{common: empty(t), served: map[schema.GroupVersion]fact[map[string]bool]{}}
		b.server.Version = version
		for _, object := range b.manifests {
			kind := object.GroupVersionKind()
			if b.served[kind.GroupVersion()].value == nil {
				b.served[kind.GroupVersion()] = fact[map[string]bool]{value: map[string]bool{}}
			}
			b.served[kind.GroupVersion()].value[kind.Kind] = true
		}
		return b
	}
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	b := all(t, "v1.36.3")
	requireResult(t, checkAPIs(b), OK, "every object in install.yaml", "")
	delete(b.served[admission].value, "MutatingAdmissionPolicy")
	requireResult(t, checkAPIs(b), Warning, "does not serve MutatingAdmissionPolicies", "install-before-1.36.yaml")

	b = all(t, "v1.35.4")
	delete(b.served[admission].value, "MutatingAdmissionPolicy")
	requireResult(t, checkAPIs(b), OK, "every object in install-before-1.36.yaml", "")
	delete(b.served[admission].value, "ValidatingAdmissionPolicy")
	requireResult(t, checkAPIs(b)[:1], Failure, "ValidatingAdmissionPolicy admissionregistration.k8s.io/v1", "--runtime-config")

	b.served[admission] = fact[map[string]bool]{err: errForbidden}
	requireResult(t, checkAPIs(b), Unknown, "server apis unknown: you may not get the kinds of", "administrator")
}
