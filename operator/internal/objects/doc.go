// Package objects caches the metadata of every populated object, so that the operator knows the objects in a namespace
// without requests to the API server.
//
// Store runs one watch for each kind that templates declare. If a template is authoritative for a kind, a second watch
// has the objects of the kind that do not have a template's label. Observe returns the objects of a
// namespace as populate.NewPlan needs them. The caller calls Expect before it applies a plan, and Record afterwards. By
// these, the store contains the writes of this process before the watch delivers them, and distinguishes them from the
// writes of other clients.
//
// These statements are always true:
//
//   - Once Record has returned, Observe returns the recorded writes, so nstpl does not write the same change twice.
//   - A deletion requested by this process is not reported as a deletion by another client, even if the answer is lost.
//   - A write under the name of nstpl that another client may have made marks the object as tampered with, so that the
//     object is applied again. If the answer to an apply of this process is lost, its next such event is attributed to
//     that apply.
//
// If another client deletes an object while a plan that may delete it is applied, the deletion is attributed to this
// process. The object is created again, but the deletion is not reported as drift.
package objects
