package cli

import "fmt"

// Unlisted returns the note for a user who may not list resources of nstpl, which owners of namespaces usually may not:
// what this means for the output, and which role lets users list them.
func Unlisted(resources, consequence string) string {
	return fmt.Sprintf("you may not list %s, so %s: ask for the ClusterRole nstpl-viewer", resources, consequence)
}

// NoAccess returns the error for a user who may read neither the policies of the cluster nor a namespace.
func NoAccess(namespace string) error {
	return fmt.Errorf("you may read neither the policies of the cluster nor namespace %s: "+
		"ask a cluster administrator for the ClusterRole nstpl-viewer, "+
		"or an administrator of the namespace for the ClusterRole view in it", namespace)
}
