// Package vetting decides who may write which NamespaceTemplate. The operator populates namespaces with its own rights,
// which are wide. So the author of a template must hold, in all namespaces, the rights that the operator uses on behalf
// of the template: to create and change the declared objects, to delete those that the change prunes, to grant what its
// RBAC objects grant, and to set the protected attributes in it.
//
// # What enters where
//
// Admission.Validate receives creations, updates and deletions of NamespaceTemplates that change what is populated or
// pruned. A request is compared with the stored template (edit), and checked in this order, the cheapest first:
//
//  1. whether the cluster serves the declared kinds, and the author may write and delete them (kinds.go, author.go),
//     and may get the sources that the template copies (sources.go); whether the author may change the rules of the
//     policy spaces whose self-service requires the labels of namespaces that the template sets (namespaces.go)
//  2. whether the template overrides objects of other templates (outline.go, deletions.go), and whether it sets labels
//     of namespaces by which templates or initializers select, or selects by labels that templates set (namespaces.go);
//     whether rules protect the labels and annotations from which it renders, and no template sets them (sources.go)
//  3. whether the template can be compiled with every combination of its overlays (package render)
//  4. whether the author may delete what may be pruned, dropped or replaced (deletions.go), and unprotect objects whose
//     protection from deletion the template removes (protection.go)
//  5. whether the author may grant what the template's Roles and RoleBindings grant (grants.go, escalation.go)
//  6. whether the author may set and remove the protected attributes (attributes.go, namespaces.go)
//  7. whether the operator may populate the kinds, and get the sources, and whether the content of these has protected
//     attributes (ownrights.go, sources.go)
//  8. whether the API server accepts the objects of each variant (trial.go, answer.go): the operator applies them in
//     the namespace nstpl-trial by dry runs, with values of the tokens that stand for all namespaces; and whether it
//     accepts the labels and annotations of namespaces (trialmetadata.go), which are set on nstpl-trial itself
//
// Problems of the contents (1, 3, 7 and 8) are reported together, so that an author corrects them at once. Problems of
// rights come first, and then alone.
//
// An edit that enables a template, no longer requires a permission, gives up deletionPolicy Delete or its finalizer, or
// sets revocation to WithRollout is judged in the same way for each earlier revision that namespaces would have until
// the rollout reaches them (revisions.go). So is one that changes the label of a tree, for authoritative revisions.
//
// A dry run stores nothing and grants nothing. The trial does not check rights: it tells authors early what would fail
// in every namespace. Its time and its number of requests are limited. Objects that it could not try are accepted with
// a warning, since namespaces report them as well.
//
// Namespaces have earlier revisions of other templates until a rollout reaches them. So other templates count with all
// revisions that are in force (package revisions). Of the edited template, the stored spec suffices for what may be
// pruned: an author of each later revision was allowed to prune what that revision no longer declares.
//
// The API server reviews the rights (SubjectAccessReviews), each once per request and at most maxReviews. Which rights
// a change requires follows from values alone: edit, grantsOf, rightsIn, overlaps and losses are functions of
// templates.
//
// # Invariants
//
//   - A template that is stored and enabled was allowed for the user who last changed what it populates. That user
//     answers for the whole template, not only for the changed part.
//   - What cannot be known counts as the widest possibility: a token in a name stands for every name, a ClusterRole
//     that does not exist for any rules, an unknown combination of overlays for one that drops each object.
//   - An edit that only disables a template needs no rights unless it prunes objects. Templates can be disabled, and
//     deleted if they delete nothing, while the operator is down.
//
// # Races that remain
//
//   - Rights are checked when the template is written. If the author loses them later, the template stays, as objects
//     that the author created would.
//   - In the same way, the author's right to get a source is checked when the template is written, and not when the
//     source changes. Package sources judges the protected attributes in it at each change, for every author.
//   - A ClusterRole that a RoleBinding of a template binds may gain rules later. Kubernetes has the same gap: it checks
//     the rules of a role when a binding is created.
//   - The check for other templates that bind or declare the same Role uses a cache. Two templates that are written at
//     the same moment may miss each other here. Package populate therefore withholds a RoleBinding from each namespace
//     in which another template declares its Role. In the same way, two templates of which one selects by a label that
//     the other sets may miss each other here. Package populate therefore never sets a label by which a stored template
//     selects, so that templates cannot select in circles. It also does not render a template in a namespace in which
//     another one sets what the template renders from.
//   - A rule that protects what a template renders from may be deleted later. The operator then does not render the
//     template any more: see population.Values.
package vetting
