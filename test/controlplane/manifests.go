package controlplane

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Manifests returns the folder of the project, relative to its root, that installs the operator on a version of
// Kubernetes, and the flags that an operator outside of the cluster needs in addition.
func Manifests(kubernetes string) (folder string, flags []string, err error) {
	parsed, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return "", nil, fmt.Errorf("version of Kubernetes: %w", err)
	}
	if parsed.LessThan(version.MajorMinor(1, 36)) {
		return "manifests/overlays/before-1.36", []string{"--mutate-namespaces"}, nil
	}
	return "manifests", nil, nil
}
