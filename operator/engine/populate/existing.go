package populate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// existing records which objects of templates the namespace had: for each key, a short digest of each object. The
// record is kept in an annotation of the namespace, so that a restart of the operator does not lose it. There are three
// keys for a template:
//
//   - populatedKey has all objects. If another object of the same name exists later, it replaces the template's, and is
//     not adopted. An object stays in the record as long as the template declares it, also while the namespace is
//     exempt from it, and a Role or RoleBinding until it is certain that no template declares it.
//   - adoptedKey has those of them that were adopted.
//   - The template's name has its objects if its driftPolicy is Report, each with the beginning of the hash of its
//     declaration. If such an object is missing later, another client deleted it, which is reported until its
//     declaration changes. An object that nstpl itself is about to delete is removed before.
type existing map[string]map[string]bool

// populatedKey returns the key for all objects of a template.
func populatedKey(template string) string { return "+" + template }

// adoptedKey returns the key for the adopted objects of a template.
func adoptedKey(template string) string { return "-" + template }

func (e existing) has(object *Object) bool {
	_, isRecorded := e.entry(object)
	return isRecorded
}

// entry returns what is recorded of an object of a template with driftPolicy Report.
func (e existing) entry(object *Object) (recorded string, isRecorded bool) {
	digest := digestOf(object.ID())
	for entry := range e[object.Template.Name] {
		if before, _, _ := strings.Cut(entry, "-"); before == digest {
			return entry, true
		}
	}
	return "", false
}

// hasOther reports whether another declaration of the object is recorded. Records of earlier versions have no hashes.
func (e existing) hasOther(object *Object) bool {
	recorded, _ := e.entry(object)
	return strings.Contains(recorded, "-") && recorded != recordEntry(object)
}

// recordEntry returns what is recorded of an object that was applied.
func recordEntry(object *Object) string {
	const enough = 8
	return digestOf(object.ID()) + "-" + object.Hash[:min(len(object.Hash), enough)]
}

// populatedBy returns the template from which the namespace had an object, or "". Objects move between templates, so
// it is the first of them by name.
func (e existing) populatedBy(id ObjectID) string { return e.first(populatedKey(""), id) }

// adoptedBy reports whether the namespace had an object that a template adopted.
func (e existing) adoptedBy(id ObjectID) bool { return e.first(adoptedKey(""), id) != "" }

// first returns the first template, by name, below whose key with a prefix an object is recorded, or "".
func (e existing) first(prefix string, id ObjectID) string {
	if len(e) == 0 {
		return ""
	}
	digest, first := populatedDigest(id), ""
	for key, digests := range e {
		template, found := strings.CutPrefix(key, prefix)
		if found && digests[digest] && (first == "" || template < first) {
			first = template
		}
	}
	return first
}

// populatedDigest returns the digest of an object below populatedKey. That of a Role or RoleBinding begins with an R,
// and digests have no capital letters. Roles and RoleBindings of other clients are deleted because of it, so no author
// of a template may find a name with the digest of another one.
func populatedDigest(id ObjectID) string {
	if isRBAC(id.GroupKind) {
		sum := sha256.Sum256([]byte(id.String()))
		return grantMark + strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 36)
	}
	return digestOf(id)
}

const grantMark = "R"

// MissesGrants reports whether the namespace had Roles or RoleBindings that are neither declared nor observed. Another
// client's objects may be in their place, and grant what templates revoked.
func MissesGrants(declared Declared, observed Observed) bool {
	missing := map[string]bool{}
	for key, digests := range existingIn(Plan{Declared: declared}) {
		for digest := range digests {
			if strings.HasPrefix(key, populatedKey("")) && strings.HasPrefix(digest, grantMark) {
				missing[digest] = true
			}
		}
	}
	if len(missing) == 0 {
		return false
	}
	for i := range declared.Objects {
		delete(missing, populatedDigest(declared.Objects[i].ID()))
	}
	for i := range declared.Exempt { // what is in their place is left alone
		delete(missing, populatedDigest(declared.Exempt[i].ID()))
	}
	for _, object := range observed.Objects {
		delete(missing, populatedDigest(idOf(object)))
	}
	return len(missing) > 0
}

// LacksObjects reports whether a namespace had objects of templates that are not among those that exist.
func LacksObjects(ns *corev1.Namespace, exist []ObjectID) bool {
	present := map[string]bool{}
	for _, id := range exist {
		present[populatedDigest(id)] = true
	}
	for key, digests := range parseExisting(ns.Annotations[v1alpha1.ExistingAnnotation]) {
		if !strings.HasPrefix(key, populatedKey("")) {
			continue
		}
		for digest := range digests {
			if !present[digest] {
				return true
			}
		}
	}
	return false
}

func (e existing) add(key, digest string) {
	if e[key] == nil {
		e[key] = map[string]bool{}
	}
	e[key][digest] = true
}

// remove removes an object and reports whether the record contained it.
func (e existing) remove(template string, id ObjectID) bool {
	digest := digestOf(id)
	before := len(e[template])
	maps.DeleteFunc(e[template], func(entry string, _ bool) bool {
		recorded, _, _ := strings.Cut(entry, "-")
		return recorded == digest
	})
	contained := len(e[template]) < before
	if len(e[template]) == 0 {
		delete(e, template)
	}
	return contained
}

// ignores reports whether the objects of a template stay as they are for a while: it cannot be rendered, or the
// namespace is exempt from it or opted out.
func (p Plan) ignores(template string) bool {
	return slices.ContainsFunc(p.Broken, func(b Broken) bool { return b.Template.Name == template }) ||
		p.inputs.Exemptions.OfTemplate(template) != nil ||
		slices.Contains(match.OptedOutTemplates(p.Namespace), template)
}

// ExistingObjects returns the value of a namespace's ExistingAnnotation after a plan was carried out.
func ExistingObjects(plan Plan, result Result) string {
	before := existingIn(plan)
	after := before.grantsOf(plan.ignores)
	add := func(change Change, isApplied bool) {
		// The labels and annotations of the namespace have a record of their own.
		if change.Declared == nil || change.Metadata != nil {
			return
		}
		after.add(populatedKey(change.Template), populatedDigest(change.ID()))
		if change.Declared.Template.Spec.DriftPolicy != v1alpha1.DriftReport {
			return
		}
		entry, isRecorded := before.entry(change.Declared)
		if isApplied || !isRecorded {
			entry = recordEntry(change.Declared)
		}
		after.remove(change.Template, change.ID())
		after.add(change.Template, entry)
	}
	deleted := map[ObjectID]bool{}
	for _, outcome := range result.Outcomes {
		deleted[outcome.ID()] = (outcome.Deleted || outcome.MaybeDeleted) && outcome.Written == nil
	}
	for _, change := range plan.Changes {
		if change.Populated && (change.Declared != nil || !deleted[change.ID()]) {
			after.add(populatedKey(change.Template), populatedDigest(change.ID()))
		}
		if change.Adopted && change.Exemption != nil {
			after.add(adoptedKey(change.Template), populatedDigest(change.ID()))
		}
		existed := change.Action == Unchanged || change.Action == LeaveAlone || change.Declared != nil &&
			before.has(change.Declared)
		if existed && !deleted[change.ID()] { // nstpl creates an object that it deleted itself again
			add(change, change.Observed != nil && change.Action != Configure)
		}
	}
	written := map[ObjectID]*metav1.PartialObjectMetadata{}
	for _, outcome := range result.Outcomes {
		if outcome.Failure == nil || outcome.Written != nil {
			add(outcome.Change, true)
		}
		written[outcome.ID()] = outcome.Written
	}
	for _, change := range plan.Changes {
		object := cmp.Or(written[change.ID()], change.Observed)
		if change.Declared != nil && change.Metadata == nil && object != nil && !deleted[change.ID()] &&
			change.isAdopted(object) {
			after.add(adoptedKey(change.Template), populatedDigest(change.ID()))
		}
	}
	return after.String()
}

// RecordedGrants returns the value of the ExistingAnnotation of a namespace that is not populated any more. The objects
// in it belong to its users. A user who replaces a Role or RoleBinding meanwhile must not keep it once the namespace is
// populated again.
func RecordedGrants(ns *corev1.Namespace) string {
	recorded := parseExisting(ns.Annotations[v1alpha1.ExistingAnnotation])
	return recorded.grantsOf(func(string) bool { return true }).String()
}

// grantsOf returns the Roles and RoleBindings in the record of some templates.
func (e existing) grantsOf(isIncluded func(template string) bool) existing {
	grants := existing{}
	for key, digests := range e {
		if key == "" || !isIncluded(key[1:]) {
			continue
		}
		for digest := range digests {
			if strings.HasPrefix(digest, grantMark) { // no digest in the third record of a template has the mark
				grants.add(key, digest)
			}
		}
	}
	return grants
}

// WriteExisting stores the value of a namespace's ExistingAnnotation.
type WriteExisting func(ctx context.Context, value string) error

// existingStore removes objects from a namespace's ExistingAnnotation before they are deleted. The answer to the
// deletion may be lost, or this process may end. In either case the next reconciliation must not conclude that another
// client deleted the object.
type existingStore struct {
	write WriteExisting

	mu      sync.Mutex
	objects existing
}

func newExistingStore(plan Plan, write WriteExisting) *existingStore {
	return &existingStore{write: write, objects: existingIn(plan)}
}

// remove returns nil once the annotation does not list the objects of changes, so that they may be deleted.
func (s *existingStore) remove(ctx context.Context, changes ...Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, isChanged := parseExisting(s.objects.String()), false
	for _, change := range changes {
		isChanged = next.remove(change.Template, change.ID()) || isChanged
	}
	if !isChanged {
		return nil
	}
	if err := s.write(ctx, next.String()); err != nil {
		return fmt.Errorf("record that it is about to be deleted: %w", err)
	}
	s.objects = next
	return nil
}

// String returns the record in a stable order: template=digest.digest,template=digest.
func (e existing) String() string {
	var parts []string
	for _, template := range slices.Sorted(maps.Keys(e)) {
		parts = append(parts, template+"="+strings.Join(slices.Sorted(maps.Keys(e[template])), "."))
	}
	return strings.Join(parts, ",")
}

// existingIn returns the record that the namespace of a plan has.
func existingIn(plan Plan) existing {
	return parseExisting(plan.Namespace.Annotations[v1alpha1.ExistingAnnotation])
}

// parseExisting parses the result of existing.String. It ignores parts that are invalid.
func parseExisting(annotation string) existing {
	parsed := existing{}
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

func digestOf(id ObjectID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id.String()))
	return strconv.FormatUint(uint64(sum.Sum32()), 36)
}
