// Package namespace holds the commands about namespaces: create, preview, status, opt-out, exempt and transfer.
//
// The commands write only Namespaces and TemplateExemptions, and never the populated objects: those belong to the
// operator. Create waits until the operator has populated the new namespace (waiter). Preview runs the operator's own
// engine on the namespace as it is or would be (prediction), so it prints what the operator would store. Status prints
// what the operator reported in the namespace's Populated condition.
//
// If the user may not read something, the commands print a note that it is unknown. They never treat it as absent.
package namespace
