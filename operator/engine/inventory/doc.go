// Package inventory decides how the objects of a tree of policies get from one commit to the next: which are applied,
// in which order, which are deleted, and which deletions wait for a person.
//
// The objects of a tree are cluster-scoped. State is what exists: the objects of the kinds that trees declare, and the
// UIDs of those that were created for the tree. NewPlan compares it with what the tree declares. These rules hold:
//
//   - Only an object that was created for the tree is deleted. Its UID says so, not its label, which users may set.
//   - A ClusterRole or ClusterRoleBinding that existed before is changed to what the tree declares, and never deleted.
//     The role of a binding cannot be changed, so a binding of another role is replaced.
//   - Any other object that existed before is not changed, unless the tree adopts it. An adopted object is never
//     deleted.
//   - An object of another tree is not changed.
//   - What needs an object that cannot be applied is held, and keeps what it has. All else goes on, revocations above
//     all. See Plan.Hold.
//   - A namespace that is protected from deletion is kept, also if a person has confirmed the commit.
//   - A policyspace is not deleted while a namespace is in or below it that is not deleted as well.
//   - Namespaces are deleted only within a limit, and the last one only if the commit creates another, unless a person
//     has confirmed the commit.
//   - A deletion that needs a confirmation needs it until the tree declares the namespace again, whatever becomes of
//     the other namespaces, of the limit or of the branch. See Deletions.
package inventory
