// Package operator assembles the operator: its manager, the controllers of each feature, and the admission chain.
//
// Run starts it. chain.go lists the features and, in one place, the order in which their admission plugins change and
// check a request. Each feature is a package in operator/internal, which explains what enters where, which invariants
// hold, and which races remain:
//
//   - population populates namespaces from templates, and defers writes until a namespace is initialized
//   - sources reads the objects that templates copy
//   - vetting decides who may write which template
//   - selection tells the admission policies which namespaces templates and initializers select
//   - attribute enforces the rules about protected labels and annotations
//   - constraint admits pods by SecurityContextConstraints
//   - policyspace enforces hierarchical policies and quotas
//   - selfservice decides which namespaces users may create in policy spaces, and when they expire
//   - openreports writes findings to Reports of openreports.io
//   - webhook answers the API server for all of them
//
// Package repository is the feature of another program, nstpl-sync, which operator/gitsync starts.
//
// The leader runs the controllers. Every replica answers webhooks.
package operator
