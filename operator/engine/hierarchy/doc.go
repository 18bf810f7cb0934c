// Package hierarchy decides how policies are inherited along a hierarchy of policyspaces and namespaces. It has two
// parts.
//
// The first part is a tree: a folder, usually in Git, whose directories are policyspaces and namespaces and whose files
// are Kubernetes manifests. Load reads it from an fs.FS, checks every rule and returns all violations with their paths
// and lines. Compile turns a valid tree into objects that can be applied to a cluster, and Flatten into the objects
// that each namespace ends up with. The rules are:
//
//   - A directory with a Namespace is a namespace directory. It has the name of the Namespace, contains no
//     directories, and may contain Roles, RoleBindings and one ResourceQuota (rules.go).
//   - Every other directory is a policyspace. It may contain RoleBindings, which all namespaces below it inherit, and
//     one ResourceQuota, which limits the sum of their usage (rules.go).
//   - Cluster-scoped objects are in the root directory (rules.go).
//   - The names of directories are unique, valid and not reserved (rules.go).
//   - Every object is one that the API server would accept (decode.go, schema.go).
//
// The second part is the forest of the PolicySpaces of a cluster. Forest finds the ancestors of a policyspace. Placed
// decides to which policyspaces a namespace belongs, and Charged in which of them its usage counts. A namespace that a
// tree claims, and that existed before, stays as it is until it is adopted (adoption.go).
//
// These invariants hold:
//
//   - Compile and Flatten agree: a namespace that is populated from the compiled objects has the flattened ones.
//   - A namespace keeps its place while its policyspace is missing or in a cycle. Nothing in it is deleted meanwhile.
//   - No function but Adopt changes the objects that it takes.
package hierarchy
