package populate

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// seals record which objects of templates with driftPolicy Report existed: by template, a short digest of each. An
// object that is missing later was deleted by another client, which is reported. Seals are kept in an annotation of the
// namespace, so that they outlive the operator's process.
type seals map[string]map[string]bool

func (s seals) has(object *Object) bool {
	return s[object.Template.Name][sealOf(object.ID())]
}

// Seal returns the value of SealAnnotation after a plan was carried out. It is empty if no template has driftPolicy
// Report.
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
		deleted[outcome.ID()] = (outcome.Deleted || outcome.MaybeDeleted) && outcome.Written == nil
	}
	for _, change := range plan.Changes {
		existed := change.Action == Unchanged || change.Action == LeaveAlone || change.Declared != nil &&
			before.has(change.Declared)
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

// WriteSeals stores the value of a namespace's SealAnnotation.
type WriteSeals func(ctx context.Context, seals string) error

// intents takes objects out of a namespace's seals before they are deleted. The answer to the deletion may be lost, and
// this process may end: whoever looks next must not take the object for one that another client deleted.
type intents struct {
	write WriteSeals

	mu    sync.Mutex
	seals seals
}

func newIntents(plan Plan, write WriteSeals) *intents {
	return &intents{write: write, seals: parseSeals(plan.Namespace.Annotations[v1alpha1.SealAnnotation])}
}

// toDelete returns when it is stored that the objects of changes may be deleted.
func (i *intents) toDelete(ctx context.Context, changes ...Change) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	next, sealed := parseSeals(i.seals.String()), false
	for _, change := range changes {
		digest := sealOf(change.ID())
		sealed = sealed || next[change.Template][digest]
		if delete(next[change.Template], digest); len(next[change.Template]) == 0 {
			delete(next, change.Template)
		}
	}
	if !sealed {
		return nil
	}
	if err := i.write(ctx, next.String()); err != nil {
		return fmt.Errorf("record that it is about to be deleted: %w", err)
	}
	i.seals = next
	return nil
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
