package diff

import (
	"strings"
	"unicode"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// action is what the operator would do with an object. The values are part of the output of diff -o json, and its help
// documents them.
type action string

const (
	// actionCreate creates an object that does not exist.
	actionCreate action = "Create"
	// actionAdopt takes over an object that exists and is not managed by nstpl yet.
	actionAdopt action = "Adopt"
	// actionConfigure changes an object whose declaration changed, or that drifted.
	actionConfigure action = "Configure"
	// actionReplace deletes and recreates an object that cannot be updated in place.
	actionReplace action = "Replace"
	// actionPrune deletes an object that is no longer declared and that the operator created.
	actionPrune action = "Prune"
	// actionDelete deletes an object that no template declares, because a template is authoritative for its kind. With
	// --tree, it also deletes an object that is no longer in the tree.
	actionDelete action = "Delete"
	// actionDeleteIfAdopted deletes an object in a Namespace that existed before the tree, once it is adopted. Such a
	// Namespace has the action LeaveAlone.
	actionDeleteIfAdopted action = "DeleteIfAdopted"
	// actionEmpty removes the rules of a Role, or the subjects of a RoleBinding, that is being deleted.
	actionEmpty action = "Empty"
	// actionKeep does not prune or delete an object, because it is protected from deletion.
	actionKeep action = "Keep"
	// actionLeaveAlone changes nothing, and the reason says why.
	actionLeaveAlone action = "LeaveAlone"
	// actionUnknown says that the object could not be compared.
	actionUnknown action = "Unknown"
)

// actions are the actions of objects that differ, in the order of the summary, with their participles.
var actions = []struct {
	action
	done string
}{
	{actionConfigure, "configured"}, {actionCreate, "created"}, {actionAdopt, "adopted"}, {actionReplace, "replaced"},
	{actionPrune, "pruned"}, {actionDelete, "deleted"}, {actionEmpty, "emptied"}, {actionKeep, "kept"},
	{actionLeaveAlone, "left alone"}, {actionUnknown, "unknown"},
}

// actionOf returns the action of a change before its dry run.
func actionOf(change populate.Change) action {
	switch change.Action {
	case populate.Create:
		switch {
		case change.Observed == nil:
			return actionCreate
		case change.Populated: // it is in place of the template's own object
			return actionConfigure
		}
		return actionAdopt
	case populate.Configure:
		return actionConfigure
	case populate.Prune:
		if change.Undeclared {
			return actionDelete
		}
		return actionPrune
	case populate.Empty:
		return actionEmpty
	case populate.LeaveAlone, populate.Unchanged:
		if change.Protected {
			return actionKeep
		}
		return actionLeaveAlone
	case populate.Unknown:
	}
	return actionUnknown
}

func (a action) applies() bool {
	return a == actionCreate || a == actionAdopt || a == actionConfigure || a == actionReplace
}

// done returns the participle of the action: "created".
func (a action) done() string {
	for _, known := range actions {
		if known.action == a {
			return known.done
		}
	}
	return "unknown"
}

// words returns the action in lower case: "leave alone".
func (a action) words() string {
	var words strings.Builder
	for i, r := range string(a) {
		if i > 0 && unicode.IsUpper(r) {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	return words.String()
}
