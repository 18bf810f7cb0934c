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
	"nstpl.dev/nstpl/operator/engine/render"
)

// existing records which objects of templates the namespace had, by short digests. It is kept in an annotation of the
// namespace, so that a restart of the operator does not lose it.
type existing struct {
	// byKey has the digests of objects below each key. The keys are:
	//
	//   - populatedKey of a template has all its objects. If another object of the same name exists later, it replaces
	//     the template's, and is not adopted. An object stays in the record as long as the template declares it, also
	//     while the namespace is exempt from it or its kind cannot be listed, and a Role or RoleBinding until it is
	//     certain that no template declares it.
	//   - adoptedKey of a template has those of them that were adopted.
	//   - formerKey has the other Roles and RoleBindings of templates that selected the namespace once. An object that
	//     exists in place of one did not exist before a template first declared it.
	byKey map[string]map[string]bool
	// reported has, by the digest of an object of a template whose driftPolicy is Report, the beginning of the hash of
	// the last applied declaration. If such an object is missing later, another client deleted it. That and other drift
	// is reported until the declaration changes. An object that nstpl itself is about to delete is removed before.
	reported map[string]string
}

func newExisting() existing { return existing{map[string]map[string]bool{}, map[string]string{}} }

// formerKey is the key for the Roles and RoleBindings of templates that do not select the namespace any more.
const formerKey = "~"

// populatedKey returns the key for all objects of a template.
func populatedKey(template string) string { return "+" + template }

// adoptedKey returns the key for the adopted objects of a template.
func adoptedKey(template string) string { return "-" + template }

// reportedMark begins the parts of the annotation that have the objects of existing.reported.
const reportedMark = "*"

// has reports whether an object of a template with driftPolicy Report is recorded.
func (e existing) has(object *Object) bool {
	_, isRecorded := e.reported[digestOf(object.ID())]
	return isRecorded
}

// knows reports whether the declaration of a change was applied before, so that a difference is drift. If the namespace
// has no record, because the template did not declare the object for a while or its driftPolicy was another one, the
// annotation with the hash decides, which users cannot change on an object with a template's label.
func (e existing) knows(change Change) bool {
	if e.has(change.Declared) {
		return e.reported[digestOf(change.ID())] == shortHash(change.Declared)
	}
	last := cmp.Or(change.Observed, change.Lost)
	return last != nil && labelOf(last) != "" && last.Annotations[v1alpha1.HashAnnotation] == change.Declared.Hash
}

// shortHash returns the beginning of the hash of a declaration.
func shortHash(object *Object) string {
	const enough = 8
	return object.Hash[:min(len(object.Hash), enough)]
}

// populatedBy returns the template from which the namespace had an object, or "". Objects move between templates, so
// it is the first of them by name.
func (e existing) populatedBy(id ObjectID) string {
	return e.firstOf(populatedKey(""), id)
}

// adoptedBy reports whether the namespace had an object that a template adopted.
func (e existing) adoptedBy(id ObjectID) bool {
	return e.firstOf(adoptedKey(""), id) != ""
}

// firstOf returns the first template, by name, below whose key with a prefix an object is recorded, or "".
func (e existing) firstOf(prefix string, id ObjectID) string {
	if len(e.byKey) == 0 {
		return "" // no digest is computed for a namespace that is populated for the first time
	}
	return e.first(prefix, populatedDigest(id))
}

// first returns the first template, by name, below whose key with a prefix a digest is recorded, or "".
func (e existing) first(prefix, digest string) string {
	first := ""
	for key, digests := range e.byKey {
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
	for key, digests := range existingIn(Plan{Declared: declared}).byKey {
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
		delete(missing, populatedDigest(render.IDOf(object)))
	}
	return len(missing) > 0
}

// LacksObjects reports whether a namespace had objects of templates that are not among those that exist.
func LacksObjects(ns *corev1.Namespace, exist []ObjectID) bool {
	present := map[string]bool{}
	for _, id := range exist {
		present[populatedDigest(id)] = true
	}
	for key, digests := range parseExisting(ns.Annotations[v1alpha1.ExistingAnnotation]).byKey {
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
	if e.byKey[key] == nil {
		e.byKey[key] = map[string]bool{}
	}
	e.byKey[key][digest] = true
}

// ignores reports whether grants of a template stay as they are for a while: it cannot be rendered, the namespace is
// exempt from it or opted out, or it is unknown which Roles or RoleBindings exist.
func (p Plan) ignores(template string) bool {
	isUnknown := func(c Change) bool { return c.Action == Unknown && isRBAC(c.Kind.GroupKind()) }
	return slices.ContainsFunc(p.Changes, isUnknown) ||
		slices.ContainsFunc(p.Broken, func(b Broken) bool { return b.Template.Name == template }) ||
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
		digest := digestOf(change.ID())
		switch {
		case change.Declared.Template.Spec.DriftPolicy != v1alpha1.DriftReport:
		case isApplied:
			after.reported[digest] = shortHash(change.Declared)
		case before.has(change.Declared):
			after.reported[digest] = before.reported[digest]
		}
	}
	deleted := map[ObjectID]bool{}
	for _, outcome := range result.Outcomes {
		deleted[outcome.ID()] = (outcome.Deleted || outcome.MaybeDeleted) && outcome.Written == nil
	}
	for _, change := range slices.Concat(plan.Changes, plan.postponed) {
		if change.Populated && (change.Declared != nil || !deleted[change.ID()]) {
			after.add(populatedKey(change.Template), populatedDigest(change.ID()))
		}
		if change.Adopted && (change.Exemption != nil || change.Action == Unknown) {
			after.add(adoptedKey(change.Template), populatedDigest(change.ID()))
		}
		isApplied := change.Action == Unchanged || change.Action == LeaveAlone // see asDeclaredNow
		existed := isApplied || change.Declared != nil && before.has(change.Declared)
		if existed && !deleted[change.ID()] { // nstpl creates an object that it deleted itself again
			add(change, isApplied)
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
	before.addFormer(plan, after)
	return after.String()
}

// addFormer adds the Roles and RoleBindings in e to after that the namespace had from templates which do not select it
// any more. To remove one, a user would have to enter templates with more than a thousand others.
func (e existing) addFormer(plan Plan, after existing) {
	const most = 1000
	var former []string
	isFormer := func(name string) bool {
		return !slices.ContainsFunc(plan.Templates, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == name })
	}
	for _, digests := range e.grantsOf(isFormer).byKey {
		for digest := range digests {
			if after.first(populatedKey(""), digest) == "" && e.first(adoptedKey(""), digest) == "" {
				former = append(former, digest)
			}
		}
	}
	slices.Sort(former)
	for _, digest := range former[:min(len(former), most)] {
		after.add(formerKey, digest)
	}
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
	grants := newExisting()
	for key, digests := range e.byKey {
		for digest := range digests {
			if strings.HasPrefix(digest, grantMark) && isIncluded(key[1:]) {
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
	next := existing{s.objects.byKey, maps.Clone(s.objects.reported)}
	for _, change := range changes {
		delete(next.reported, digestOf(change.ID()))
	}
	if len(next.reported) == len(s.objects.reported) {
		return nil
	}
	if err := s.write(ctx, next.String()); err != nil {
		return fmt.Errorf("record that it is about to be deleted: %w", err)
	}
	s.objects = next
	return nil
}

// String returns the record in a stable order: key=digest.digest,key=digest.
func (e existing) String() string {
	var parts []string
	for _, digest := range slices.Sorted(maps.Keys(e.reported)) {
		parts = append(parts, reportedMark+digest+"="+e.reported[digest])
	}
	for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
		parts = append(parts, key+"="+strings.Join(slices.Sorted(maps.Keys(e.byKey[key])), "."))
	}
	return strings.Join(parts, ",")
}

// existingIn returns the record that the namespace of a plan has.
func existingIn(plan Plan) existing {
	return parseExisting(plan.Namespace.Annotations[v1alpha1.ExistingAnnotation])
}

// parseExisting parses the result of existing.String. It ignores parts that are invalid.
func parseExisting(annotation string) existing {
	parsed := newExisting()
	for part := range strings.SplitSeq(annotation, ",") {
		key, digests, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			continue
		}
		if digest, isReported := strings.CutPrefix(key, reportedMark); isReported {
			parsed.reported[digest] = digests
			continue
		}
		for digest := range strings.SplitSeq(digests, ".") {
			parsed.add(key, digest)
		}
	}
	return parsed
}

func digestOf(id ObjectID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id.String()))
	return strconv.FormatUint(uint64(sum.Sum32()), 36)
}
