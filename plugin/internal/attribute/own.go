package attribute

import "nstpl.dev/nstpl/operator/engine/render"

// withOwnGuards returns the answer for a label or an annotation that nstpl itself uses. What rules allow is then not
// known to be allowed: the policies in manifests/admission decide.
func (a answer) withOwnGuards(key string) answer {
	if !a.allowed || !render.IsReservedKey(key) {
		return a
	}
	return answer{unknown: true, reason: "nstpl uses " + key + " itself, so that other permissions than the roles of " +
		"rules may decide: try it with kubectl and --dry-run=server"}
}
