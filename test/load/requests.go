package main

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/measure"
)

// comparedResources are the resources that the floor writes, and that the operator may write in namespaces of these
// templates.
var comparedResources = []string{
	"networkpolicies", "resourcequotas", "limitranges", "roles", "rolebindings",
	"namespaces", "namespaces/status", "namespacetemplates", "namespacetemplates/status", "events",
}

// ofBothSides returns the requests of the two sides without their watches. It omits requests of the clients that create
// namespaces, and of Kubernetes itself: in each namespace a ServiceAccount, a ConfigMap and the status of the
// ResourceQuota.
func ofBothSides(r measure.Requests) measure.Requests {
	made := measure.Requests{}
	for kind, count := range r {
		verb, resource, _ := strings.Cut(kind, " ")
		if slices.Contains(comparedResources, resource) && verb != "WATCH" && kind != "POST namespaces" {
			made[kind] = count
		}
	}
	return made
}
