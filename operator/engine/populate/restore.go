package populate

import (
	"context"
	"slices"
)

// Restore applies some declared objects of a plan as Apply does, also those that driftPolicy Report leaves as they are.
// It leaves all others as they are, and deletes an object only to recreate it.
func (a *Applier) Restore(ctx context.Context, plan Plan, ids []ObjectID) Result {
	plan = plan.restoring(ids)
	// If this process ends before it recreates an object, the record has the finding that the object is missing.
	keepRecord := func(context.Context, string) error { return nil }
	result, _ := newPass(a, plan, keepRecord).applyDeclared(ctx, plan)
	return result
}

// MayRestore returns why Restore would refuse one of the objects because of other Roles and RoleBindings, as an Outcome
// with a Failure, or nil. It only reads.
func (a *Applier) MayRestore(ctx context.Context, plan Plan, ids []ObjectID) *Outcome {
	plan = plan.restoring(ids)
	p, roles := newPass(a, plan, nil), rolesOf(plan)
	for _, change := range plan.Changes {
		if change.Declared == nil || change.Action == Unchanged || !slices.Contains(ids, change.ID()) {
			continue
		}
		var failure *Failure
		if role, isBound := roles.boundBy(change); isBound && role.Action == LeaveAlone {
			failure = failuref(ReasonRoleNotAsDeclared, "%s, which it binds, is not as declared: restore the Role, too",
				role.ID())
		}
		if err := p.checkBindings(ctx, change); err != nil {
			failure = NewFailure(err, p.namespace)
		}
		if failure != nil {
			return &Outcome{Change: change, Failure: failure}
		}
	}
	return nil
}

// restoring returns the plan with the changes that Restore makes.
func (p Plan) restoring(ids []ObjectID) Plan {
	p.Changes = slices.Clone(p.Changes)
	for i := range p.Changes {
		change := &p.Changes[i]
		isNamed := slices.Contains(ids, change.ID())
		switch {
		case isNamed && change.Action == LeaveAlone && change.Drifted:
			change.Action = change.correction()
		case !isNamed && change.Action != Unchanged:
			change.Action = LeaveAlone
		}
	}
	return p
}
