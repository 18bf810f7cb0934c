// Package constraint enforces SecurityContextConstraints: it admits pods by them, guards exec and attach, gives
// namespaces their UID ranges and SELinux levels, and removes references to deleted objects from constraints. The
// decision about one pod is a function of values, scc.Review, and so are the allocations, scc.Allocate and
// scc.NextFree. This package supplies the values and writes the results.
//
// # What enters where
//
//   - Admission.Mutate receives new pods, updates, and new ephemeral containers. It sets the fields that the pod leaves
//     open as the first matching constraint generates them, and records the constraint on the pod.
//   - Admission.Validate receives the same requests after all webhooks have changed them, and denies a pod that no
//     constraint allows as it is. It also receives exec and attach.
//   - Blocks has UID ranges and SELinux levels in reserve for new namespaces. Package population writes them together
//     with its first report, so that a populated namespace has them when it opens.
//   - Allocations is the controller that annotates all other namespaces with them, and repairs those that share some. A
//     pod that needs them waits some seconds for them.
//   - Statuses is the controller that writes whether the operator admits pods by a constraint.
//   - References is the controller that removes ServiceAccounts and Namespaces that were deleted from the users and
//     groups of constraints.
//
// Grants decides who may use a constraint: its users and groups, or users with the RBAC verb use.
//
// # Invariants
//
//   - A pod runs only if a constraint that its author or its service account may use allows the pod as it is stored,
//     but for exempt namespaces and mirror pods. The annotation on the pod names that constraint. What the request sets
//     in that annotation is overwritten.
//   - Mutate and Validate never decide by constraints that are older than those because of which the API server sends a
//     request. The webhook's URL contains their revision. If the cache of a replica has not reached it, the constraints
//     are read from the API server. A constraint is Ready once the API server uses a webhook with its generation.
//   - A user may exec into a pod or attach to it only if the pod would also be allowed as a pod of that user.
//   - No UID range is given to two namespaces. The next free block is written to a ConfigMap before a namespace is
//     given one, so that another leader does not give the same block again. Of two namespaces that share a range all
//     the same, for example after a restore, the younger one gets another.
//   - Without constraints, none of this happens: there is no webhook and no allocation.
//   - If the operator does not answer, the API server denies pods: the failure policy is Fail, since a pod could run as
//     root.
//
// # Races that remain
//
//   - A change of rights counts after a moment: answers about the verb use are kept for some seconds. Where Mutate and
//     Validate disagree for this reason, or because constraints have changed between them, the client is asked to
//     repeat the request.
//   - The API server may use the mutating webhook of a constraint a moment after the constraint is Ready. Until then, a
//     pod that only this constraint admits is denied.
//   - A constraint that is deleted soon after its creation may count for 0.2 seconds more where a cache is late.
//   - Before the first constraint is in the API server's webhook configuration, pods are created without a decision.
//     OpenShift has no such time because it always has constraints. Pods that exist are not evicted here either.
//   - A ServiceAccount that is deleted and created again under its name gets no rights from an entry of users, even
//     before References has removed it: Grants compares UIDs. An entry that was written before its object first
//     existed has no UID yet and counts for the first object of that name.
package constraint
