// Package namespace holds the commands about namespaces: create, preview, status and opt-out.
//
// They show what the operator does with a namespace and change only what a user decides: that it exists, and its labels
// and annotations. Create waits until the operator has populated the new namespace (waiter). Preview runs the
// operator's own engine on the namespace as it is or would be (plan), so that it prints what the operator would store.
// Status prints what the operator reported in the namespace's Populated condition.
//
// A user who may not read something gets a note that it is unknown. The commands never take the unknown for absent.
package namespace
