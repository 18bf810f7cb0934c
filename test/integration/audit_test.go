package integration_test

import (
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
)

type request = audit.Request

const operatorUser = v1alpha1.OperatorUser

// undeclaredName is a part of the names of what others create and an authoritative template has deleted.
const undeclaredName = "undeclared"

// reboundName is a part of the names of RoleBindings that others created, and that the operator adopted and then had to
// replace.
const reboundName = "rebound"

// mayBeDeleted reports whether the operator may delete what others created.
func mayBeDeleted(r request) bool {
	name := r.ObjectRef.Name
	// the name is the operator's
	return strings.Contains(name, undeclaredName) || strings.Contains(name, reboundName) || name == v1alpha1.QuotaName
}
