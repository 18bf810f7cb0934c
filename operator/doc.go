// Package operator assembles the operator: its manager, the controllers of each feature, and the admission chain.
//
// Run starts it. chain.go lists the features and, in one place, the order in which their admission plugins change and
// check a request. Each feature is a package in operator/internal, which explains what enters where, which invariants
// hold, and which races remain:
//
//   - population populates namespaces from templates, and defers writes until a namespace is initialized
//   - vetting decides who may write which template
//   - attribute enforces the rules about protected labels and annotations
//   - constraint admits pods by SecurityContextConstraints
//   - policyspace enforces hierarchical policies and quotas
//   - webhook answers the API server for all of them
//
// The leader runs the controllers. Every replica answers webhooks.
package operator
