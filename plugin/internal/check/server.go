package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// The oldest version of Kubernetes that nstpl supports, and the first in which MutatingAdmissionPolicies are enabled.
var (
	oldestServer   = utilversion.MajorMinor(1, 34)
	mutatingServer = utilversion.MajorMinor(1, 36)
)

// mutatesByPolicies reports whether a version of Kubernetes has MutatingAdmissionPolicies. A version that cannot be
// parsed is taken as a new one.
func mutatesByPolicies(server string) bool {
	parsed, err := utilversion.ParseGeneric(server)
	return err != nil || !parsed.LessThan(mutatingServer)
}

// manifestFor returns the file of a release for a version of Kubernetes.
func manifestFor(server string) string {
	if mutatesByPolicies(server) {
		return "install.yaml"
	}
	return "install-before-1.36.yaml"
}

// checkServer checks the version of Kubernetes.
func checkServer(c *common) Result {
	r := Result{Check: "server-version", Status: OK, Message: "Kubernetes " + c.server.Version + " is supported"}
	parsed, err := utilversion.ParseGeneric(c.server.Version)
	switch {
	case err != nil:
		r.Status = Unknown
		r.Message = fmt.Sprintf("the API server has version %q, which is not a version of Kubernetes", c.server.Version)
		r.Remedy = fmt.Sprintf("make sure that it is Kubernetes %s or later", oldestServer)
	case parsed.LessThan(oldestServer):
		r.Status = Failure
		r.Message = fmt.Sprintf("Kubernetes %s is older than %s, the oldest version that nstpl supports",
			c.server.Version, oldestServer)
		r.Remedy = fmt.Sprintf("upgrade the cluster to Kubernetes %s or later", oldestServer)
	}
	return r
}

// needed returns the objects that an installation in the cluster has.
func (c *common) needed() []*unstructured.Unstructured {
	if mutatesByPolicies(c.server.Version) {
		return c.manifests
	}
	return slices.DeleteFunc(slices.Clone(c.manifests), isMutatingPolicy)
}

// isMutatingPolicy reports whether an object is a MutatingAdmissionPolicy or its binding. Before Kubernetes 1.36, the
// operator's webhook does their work.
func isMutatingPolicy(object *unstructured.Unstructured) bool {
	return strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy")
}

// checkAPIs checks whether the API server serves the kinds of all objects to install.
func checkAPIs(b *before) []Result {
	j := judgement{check: "server-apis"}
	var missing, mutating []string
	for _, object := range b.needed() {
		kind := object.GroupVersionKind()
		served := b.served[kind.GroupVersion()]
		if served.err != nil {
			return []Result{unread(j.check, "get the kinds of "+kind.GroupVersion().String(), served.err)}
		}
		switch name := kind.Kind + " " + kind.GroupVersion().String(); {
		case served.value[kind.Kind]:
		case isMutatingPolicy(object):
			mutating = append(mutating, name)
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		j.report(Failure, "the API server does not serve "+output.FirstFew(missing),
			"enable these APIs with the API server's flag --runtime-config")
	}
	if len(mutating) > 0 {
		j.report(Warning, "the API server does not serve MutatingAdmissionPolicies",
			"enable the feature gate MutatingAdmissionPolicy and the API admissionregistration.k8s.io/v1, or apply "+
				"install-before-1.36.yaml instead of install.yaml")
	}
	return j.orOK("the API server serves the API of every object in " + manifestFor(b.server.Version))
}

// kindsOf returns the kinds of objects, each once and in their order.
func kindsOf(objects []*unstructured.Unstructured) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, object := range objects {
		if kind := object.GroupVersionKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
