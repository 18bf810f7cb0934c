package populate

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// seals record which objects of templates with driftPolicy Report existed: by template, a short digest of each. An object
// that is missing later was deleted by another client, which is reported. Seals are kept in an annotation of the
// namespace, so that they outlive the operator's process.
type seals map[string]map[string]bool

func (s seals) has(object *Object) bool {
	return s[object.Template.Name][sealOf(object.ID())]
}

// Seal returns the value of SealAnnotation after a plan was carried out. It is empty if no template has driftPolicy Report.
func Seal(plan Plan, result Result) string {
	there := seals{}
	add := func(change Change) {
		if change.Declared == nil || change.Declared.Template.Spec.DriftPolicy != v1alpha1.DriftReport {
			return
		}
		if there[change.Template] == nil {
			there[change.Template] = map[string]bool{}
		}
		there[change.Template][sealOf(change.ID())] = true
	}
	before := parseSeals(plan.Namespace.Annotations[v1alpha1.SealAnnotation])
	deleted := map[ObjectID]bool{}
	for _, outcome := range result.Outcomes {
		deleted[outcome.ID()] = outcome.Deleted && outcome.Written == nil
	}
	for _, change := range plan.Changes {
		existed := change.Action == Unchanged || change.Action == LeaveAlone || change.Declared != nil && before.has(change.Declared)
		if existed && !deleted[change.ID()] { // what this project deletes comes back
			add(change)
		}
	}
	for _, outcome := range result.Outcomes {
		if outcome.Failure == nil {
			add(outcome.Change)
		}
	}
	return there.String()
}

// String writes the seals in a stable order: template=digest.digest,template=digest.
func (s seals) String() string {
	var parts []string
	for _, template := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, template+"="+strings.Join(slices.Sorted(maps.Keys(s[template])), "."))
	}
	return strings.Join(parts, ",")
}

func parseSeals(annotation string) seals {
	parsed := seals{}
	for part := range strings.SplitSeq(annotation, ",") {
		template, digests, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		parsed[template] = map[string]bool{}
		for digest := range strings.SplitSeq(digests, ".") {
			parsed[template][digest] = true
		}
	}
	return parsed
}

func sealOf(id ObjectID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id.String()))
	return strconv.FormatUint(uint64(sum.Sum32()), 36)
}
