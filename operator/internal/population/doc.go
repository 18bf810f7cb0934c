// Package population populates namespaces with the objects that NamespaceTemplates declare.
//
// Namespaces (namespaces.go) reconciles one namespace at a time in five steps: it selects the templates, renders them,
// plans what to do about the objects that exist, applies the plan, and reports. Package populate has the decisions and
// the writes. Templates (templates.go) accepts a template before any namespace is populated with it: it compiles the
// template and records its kinds in its status, so that a later process finds all objects again. Initializers
// (initializers.go) accepts the configurations of other initializers. Hold (hold.go) is the admission plugin that
// delays requests until their namespace is initialized, and has them repeated then; NamespaceMutators (mutators.go) are
// for API servers before Kubernetes 1.36. Contributors (contributors.go) is what other features contribute to a
// namespace: this package imports none of them.
//
// The invariants:
//
//   - A report is one write with the namespace's resourceVersion. It contains the Populated condition, the record of
//     existing objects, the depth labels, and the end of the initialization, so that these always agree.
//   - No namespace is planned before every stored template was loaded (Templates.Load), or moved before the templates
//     that were written before the move are accepted (Templates.Current).
//   - No namespace is planned while the objects of a template that selects it are not known because their first list
//     has not arrived yet. A kind that the API server cannot list delays no other namespaces.
//   - What a user should know is derived once, by populate.Findings. The condition (report.go), Events (events.go), the
//     templates' statuses (templateresults.go, results.go) and metrics are views of the findings.
//
// Memory holds nothing that decides about deletions. After a restart every namespace is reconciled once, new and
// initializing ones first, and nothing is written where everything is as reported.
//
// One race remains: a template that is created in the same moment as a namespace may be unknown to the operator when
// the namespace has all other objects. Then the API server has added the initializer namespace-template already, so the
// namespace stays closed until Templates.Behind knows that no template is missing.
package population
