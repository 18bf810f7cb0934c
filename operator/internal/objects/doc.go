// Package objects caches the metadata of every populated object, so that the operator knows the objects in a namespace
// without requests to the API server.
//
// Store runs one informer for each declared kind, and another one for the objects of the kind without a template's
// label if a template is authoritative for the kind. Observe returns the input of populate.NewPlan for a namespace.
// Expect and Record bracket the application of a plan: they add the writes of this process to the cache before the
// watch delivers them, and distinguish these writes from those of other clients. The store queues a namespace only for
// the latter.
//
// These statements are always true:
//
//   - A write with an answer is in the cache before the next plan is made, so nstpl does not write the same change twice.
//   - A deletion that this process requested is not reported as a deletion by another client, even if the answer is lost.
//   - A write under the name of nstpl that this process may not have made marks the object as tampered with, so that it is
//     applied again. If the answer to an own apply is lost, the object is not marked, because most such writes are own
//     ones.
//
// If another client deletes an object while a plan that may delete it is applied, the deletion counts as one of this
// process. The object is created again, but not reported as drift.
//
// In store.go are the kinds and the access to them, in kind.go one informer and its bookkeeping of own writes, and in
// reduce.go the reduction of metadata that keeps the cache small.
package objects
