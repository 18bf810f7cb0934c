// Package schema checks objects against the schemas of their kinds, without a cluster. It tells all that is wrong with
// an object at once, with the path of each field and what to write instead:
//
//	spec.hards: unknown field: did you mean hard?
//	spec.hard[pods]: must be a quantity, not the string "five"
//
// A Catalog knows two sorts of kinds. The kinds of Kubernetes are known from the OpenAPI documents of its API servers,
// for each version (kubernetes.go). The folder kubernetes has what validation needs of them: test/openapi reads it, and
// keeps the required fields that an API server reports if they are missing. Rules add what schemas do not tell
// of the kinds that templates declare most (rules.go, resources.go). Custom kinds are known from their
// CustomResourceDefinitions, which the API server's own code validates (custom.go).
//
// These invariants hold:
//
//   - A problem is never a false alarm: the API server of the same version rejects the object, too. The opposite does
//     not hold. Only the API server can tell that an object is valid, because admission and validation in Go decide
//     as well.
//   - Nothing is reported about a kind that the Catalog does not know. Knows tells callers what to skip.
//   - Check takes an object as it is sent to the API server. Tokens of templates are already replaced.
//   - Messages are sentences for people. They never have the names of Go types.
//
// A cluster that is newer than the newest of Versions may accept fields that the schemas do not have. Callers with a
// cluster should let its API server decide, and take remedies from here.
package schema
