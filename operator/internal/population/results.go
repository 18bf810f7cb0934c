package population

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/reduce"
)

// State is the state of a template in a namespace.
type State int

// The states. A namespace is counted under one of them for each template that selects it.
const (
	Pending State = iota
	Populated
	Failed
	Drifted
	OptedOut
	// Ahead is the state of a template that selects a namespace and whose rollout has not reached it yet.
	Ahead
)

// failure is why an object could not be applied. object is empty if the template as a whole failed.
type failure struct{ object, message string }

// TemplateResult is the result of populating a namespace with a template.
type TemplateResult struct {
	// Generation is that of the template. A reconciliation that began before the template changed does not replace the
	// result of a newer generation.
	Generation int64
	State      State
	// HasDrifted is true if an object was changed and driftPolicy Report leaves it as it is. A namespace in state
	// Failed may have drifted, too.
	HasDrifted bool
	Failures   []failure
	// Passes is true if a failure may pass by itself, and Lasts if one does not, and users of the namespace cannot have
	// caused it either: only such a failure says something about the template.
	Passes, Lasts bool
	// Overridden are the objects that both this template and another one declare.
	Overridden []populate.Overridden
}

// plainResult is a TemplateResult without failures and overridden objects.
type plainResult struct {
	generation int64
	state      State
	hasDrifted bool
}

// Results keeps the latest result of each template in each namespace in memory. The status of a template sums them up.
// After a start, every namespace that a template may select is reconciled once before its status is written, so that a
// restart changes no status. Results are safe for concurrent use.
type Results struct {
	changed func(template string, isSettled bool)
	// seed is that of the hashes of findings.
	seed maphash.Seed

	mu         sync.Mutex
	namespaces map[string]*record
	// results are by template and namespace; templates are the templates that have a result, by namespace.
	results   map[string]map[string]*TemplateResult
	templates map[string]map[string]struct{}
	// plain has one copy of each result without failures and overridden objects: there are as many as namespaces times
	// their templates.
	plain reduce.Table[plainResult, *TemplateResult]
	// pending is the number of results in state Pending, by template.
	pending map[string]int
	// unreconciled are the namespaces that existed at the start and have not been reconciled since, with the templates
	// of which they may lack a result, or nil if these are not known yet.
	unreconciled map[string][]string
	// unknown is the number of those whose templates are not known, and lacking that of the others by template.
	unknown int
	lacking map[string]int
	// waiting are the templates whose status waits until every namespace has its result.
	waiting map[string]struct{}
}

type record struct {
	uid types.UID
	// created is when the watch reported the creation of the namespace; zero if it is older than this process.
	created time.Time
	// isReconciled is true after the first reconciliation.
	isReconciled bool
	// unconfirmed are the objects that the next plan applies again.
	unconfirmed []populate.ObjectID
	// reported has a hash of each finding of the last report, since the texts would take much memory. It is nil before
	// the first one.
	reported []uint64
}

// NewResults returns empty results. They call changed for each template whose result changed in a namespace. isSettled
// is true if that was the last namespace that was pending.
func NewResults(changed func(template string, isSettled bool)) *Results {
	return &Results{
		changed:    changed,
		seed:       maphash.MakeSeed(),
		namespaces: map[string]*record{},
		waiting:    map[string]struct{}{},
		results:    map[string]map[string]*TemplateResult{},
		templates:  map[string]map[string]struct{}{},
		pending:    map[string]int{},
	}
}

// Start sets the namespaces that existed at the start.
func (r *Results) Start(namespaces []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreconciled, r.unknown, r.lacking = map[string][]string{}, len(namespaces), map[string]int{}
	for _, name := range namespaces {
		r.unreconciled[name] = nil
	}
}

// Complete reports whether every namespace that existed at the start has been reconciled, or waits for other templates.
// If not, changed is called for the template once they have, whether it selects a namespace or not.
func (r *Results) Complete(template string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isComplete := r.unreconciled != nil && r.unknown == 0 && r.lacking[template] == 0
	if !isComplete {
		r.waiting[template] = struct{}{}
	}
	return isComplete
}

// Waits records that a namespace of the start cannot be reconciled now, and of which templates it may lack a result:
// those that may select it, or nil if these are not known. The statuses of all others do not wait for it.
func (r *Results) Waits(namespace string, templates func() []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.unreconciled[namespace]; ok {
		r.setLacking(namespace, templates())
	}
}

// setLacking records of which templates a namespace of the start may lack a result, or nil if these are not known. The
// statuses that waited only for this namespace are due. It counts templates and does not look at other namespaces,
// because all of them may be waiting. The caller holds the lock.
func (r *Results) setLacking(namespace string, templates []string) {
	// The new templates come first, so that the count of one that the namespace still lacks never becomes zero.
	if templates == nil {
		r.unknown++
	}
	for _, template := range templates {
		r.lacking[template]++
	}
	before := r.unreconciled[namespace]
	r.unreconciled[namespace] = templates
	for _, template := range before {
		if r.lacking[template]--; r.lacking[template] == 0 {
			delete(r.lacking, template)
			r.continueWaiting(template)
		}
	}
	if before != nil {
		return
	}
	if r.unknown--; r.unknown == 0 {
		for template := range r.waiting {
			r.continueWaiting(template)
		}
	}
}

// continueWaiting makes the status of a template due if it waits and no namespace of the start lacks a result of the
// template any more. The caller holds the lock.
func (r *Results) continueWaiting(template string) {
	if _, isWaiting := r.waiting[template]; isWaiting && r.unknown == 0 && r.lacking[template] == 0 {
		delete(r.waiting, template)
		r.changed(template, true)
	}
}

// Created records that the watch reported the creation of a namespace. It reports false if the namespace was reconciled
// already: the cache has it a moment before its event arrives.
func (r *Results) Created(namespace string, uid types.UID, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.namespaces[namespace]; known != nil && known.uid == uid {
		return false
	}
	r.namespaces[namespace] = &record{uid: uid, created: at}
	return true
}

// IsNew reports whether a namespace was created while this process was watching, and has not been reconciled since. The
// objects that a cache may still have in it belong to an earlier namespace of the same name.
func (r *Results) IsNew(namespace string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.namespaces[namespace]
	return known.isNew() && known.uid == uid
}

// IsSuccessor reports whether the results of a namespace are those of an earlier one of the same name, so that the
// watch has not reported the creation of this one yet.
func (r *Results) IsSuccessor(namespace string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.namespaces[namespace]
	return known != nil && known.isReconciled && known.uid != uid
}

// isNew may be called on a nil record.
func (r *record) isNew() bool {
	return r != nil && !r.created.IsZero() && !r.isReconciled
}

// Record replaces the results of a namespace. The first time that the namespace is populated, it returns when the watch
// reported its creation, and otherwise the zero time.
func (r *Results) Record(
	namespace string, uid types.UID, results map[string]TemplateResult, populated bool,
) (created time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.namespaces[namespace]
	if known.isNew() && known.uid != uid {
		// The results are about an earlier namespace of the same name.
		return time.Time{}
	}
	if known == nil || known.uid != uid {
		known = &record{uid: uid}
		r.namespaces[namespace] = known
	}
	known.isReconciled = true
	if populated {
		created, known.created = known.created, time.Time{}
	}
	for template := range r.templates[namespace] {
		if _, exists := results[template]; !exists {
			r.remove(template, namespace)
		}
	}
	for template, result := range results {
		// A plan that began before the template changed does not replace the result that is pending since.
		before := r.results[template][namespace]
		if before == nil || before.State != Pending || before.Generation <= result.Generation {
			r.set(template, namespace, result)
		}
	}
	r.reconciled(namespace)
	return created
}

// Deleted forgets a deleted namespace. It reports false if a new one of the same name was reconciled already: the cache
// has it a moment before the events of both arrive.
func (r *Results) Deleted(namespace string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.namespaces[namespace]
	switch {
	case known != nil && known.isReconciled && known.uid != uid:
		return false
	case !known.isNew() || known.uid == uid: // it may have ended before its first pass
		r.forget(namespace)
	}
	return true
}

// SetUnconfirmed records which objects of a namespace may be stored otherwise than declared: the report on it may not
// be stored before the next plan.
func (r *Results) SetUnconfirmed(namespace string, uid types.UID, objects []populate.ObjectID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.namespaces[namespace]; known != nil && known.uid == uid {
		known.unconfirmed = objects
	}
}

// Unconfirmed returns what SetUnconfirmed recorded last.
func (r *Results) Unconfirmed(namespace string, uid types.UID) []populate.ObjectID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.namespaces[namespace]; known != nil && known.uid == uid {
		return known.unconfirmed
	}
	return nil
}

// NewFindings returns the findings that were not reported by the call before for the same namespace. isStored reports
// for the first call after a start whether an earlier process reported a finding.
func (r *Results) NewFindings(
	namespace string, uid types.UID, findings []populate.Finding, isStored func(populate.Finding) bool,
) []populate.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.namespaces[namespace]
	if known == nil || known.uid != uid {
		return nil // they are about an earlier namespace of the same name
	}
	var found []populate.Finding
	reported := make([]uint64, 0, len(findings))
	for _, finding := range findings {
		hash := maphash.Comparable(r.seed, [...]string{
			finding.Object.String(), finding.Template, finding.Reason, finding.Message,
		})
		reported = append(reported, hash)
		isNew := !slices.Contains(known.reported, hash)
		if known.reported == nil {
			isNew = !isStored(finding)
		}
		if isNew {
			found = append(found, finding)
		}
	}
	known.reported = reported
	return found
}

// Forget removes a deleted namespace, unless a new one of the same name was created since.
func (r *Results) Forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.namespaces[namespace].isNew() {
		r.forget(namespace)
	}
}

// forget removes a namespace. The caller holds the lock.
func (r *Results) forget(namespace string) {
	delete(r.namespaces, namespace)
	for template := range r.templates[namespace] {
		r.remove(template, namespace)
	}
	r.reconciled(namespace)
}

// SetPending records that namespaces are yet to be populated with a generation of a template.
func (r *Results) SetPending(template string, generation int64, namespaces []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, namespace := range namespaces {
		r.set(template, namespace, TemplateResult{Generation: generation, State: Pending})
	}
}

// SetAhead records that a template selects a namespace, and that its rollout has not reached the namespace yet. It does
// nothing if the template has a result there.
func (r *Results) SetAhead(template, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isKnown := r.results[template][namespace]; !isKnown {
		r.set(template, namespace, TemplateResult{State: Ahead})
	}
}

// Of returns the results of a template by namespace.
func (r *Results) Of(template string) map[string]TemplateResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := make(map[string]TemplateResult, len(r.results[template]))
	for namespace, result := range r.results[template] {
		results[namespace] = *result
	}
	return results
}

// ForgetTemplate removes a deleted template. It returns the namespaces that it selected.
func (r *Results) ForgetTemplate(template string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	namespaces := slices.Collect(maps.Keys(r.results[template]))
	for _, namespace := range namespaces {
		r.remove(template, namespace)
	}
	return namespaces
}

// mostListed is the most failures and overridden objects that a summary lists, and mostNamed the most namespaces that
// it names for each failure.
const (
	mostListed = 10
	mostNamed  = 3
)

// Summary is the sum of a template's results in all namespaces that it selects.
type Summary struct {
	Counts v1alpha1.NamespaceCounts
	// Pending counts the namespaces that are being populated, and Ahead those that the rollout has not reached.
	Pending, Ahead int
	Failures       []v1alpha1.ObjectFailure
	Overridden     []populate.Overridden
}

// Summary returns the sum of a template's results: the counts, and at most ten failures and ten overridden objects, in
// ascending order of namespaces. updated is the generation of the newest revision.
func (r *Results) Summary(template string, updated int64) Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum Summary
	results, isOverridden := r.results[template], false
	for _, result := range results {
		sum.count(*result, updated)
		isOverridden = isOverridden || len(result.Overridden) > 0
	}
	sum.Counts.Matched = int32(len(results)) - sum.Counts.OptedOut
	if sum.Counts.Failed == 0 && !isOverridden {
		return sum
	}
	listed := map[failure]int{}
	for _, namespace := range slices.Sorted(maps.Keys(results)) {
		for _, failure := range results[namespace].Failures {
			sum.addFailure(listed, namespace, failure)
		}
		for _, overridden := range results[namespace].Overridden {
			if len(sum.Overridden) < mostListed && !slices.Contains(sum.Overridden, overridden) {
				sum.Overridden = append(sum.Overridden, overridden)
			}
		}
	}
	return sum
}

func (s *Summary) count(result TemplateResult, updated int64) {
	if result.State != Pending && result.State != OptedOut && result.State != Ahead && result.Generation >= updated {
		s.Counts.Updated++
	}
	if result.HasDrifted {
		s.Counts.Drifted++
	}
	switch result.State {
	case Pending:
		s.Pending++
	case Populated:
		s.Counts.Populated++
	case Failed:
		s.Counts.Failed++
	case OptedOut:
		s.Counts.OptedOut++
	case Ahead:
		s.Ahead++
	case Drifted:
	}
}

// addFailure adds a namespace to the entry of a failure. listed are the positions of the failures that have one.
func (s *Summary) addFailure(listed map[failure]int, namespace string, failure failure) {
	at, isListed := listed[failure]
	switch {
	case !isListed && len(s.Failures) == mostListed:
		return
	case !isListed:
		at = len(s.Failures)
		listed[failure] = at
		s.Failures = append(s.Failures, v1alpha1.ObjectFailure{Object: failure.object, Message: failure.message})
	}
	s.Failures[at].Count++
	if len(s.Failures[at].Namespaces) < mostNamed {
		s.Failures[at].Namespaces = append(s.Failures[at].Namespaces, namespace)
	}
}

// set and remove are called with the lock held.
func (r *Results) set(template, namespace string, result TemplateResult) {
	before := r.results[template][namespace]
	if before != nil && same(*before, result) {
		return
	}
	if r.results[template] == nil {
		r.results[template] = map[string]*TemplateResult{}
	}
	if r.templates[namespace] == nil {
		r.templates[namespace] = map[string]struct{}{}
	}
	r.results[template][namespace] = r.shared(result)
	r.templates[namespace][template] = struct{}{}
	r.changed(template, r.count(template, before != nil && before.State == Pending, result.State == Pending))
}

// shared returns a copy of a result, which other namespaces share if it is plain.
func (r *Results) shared(result TemplateResult) *TemplateResult {
	if len(result.Failures) > 0 || len(result.Overridden) > 0 {
		return &result
	}
	key := plainResult{result.Generation, result.State, result.HasDrifted}
	return r.plain.Value(key, func() *TemplateResult { return &result })
}

// count updates the number of pending namespaces of a template. It reports whether the last one was settled.
func (r *Results) count(template string, was, is bool) (isSettled bool) {
	switch {
	case is && !was:
		r.pending[template]++
	case was && !is:
		if r.pending[template]--; r.pending[template] == 0 {
			delete(r.pending, template)
			return true
		}
	}
	return false
}

func (r *Results) remove(template, namespace string) {
	before := r.results[template][namespace]
	isSettled := r.count(template, before != nil && before.State == Pending, false)
	delete(r.results[template], namespace)
	delete(r.templates[namespace], template)
	if len(r.results[template]) == 0 {
		delete(r.results, template)
	}
	if len(r.templates[namespace]) == 0 {
		delete(r.templates, namespace)
	}
	r.changed(template, isSettled)
}

func same(a, b TemplateResult) bool {
	return a.State == b.State && a.HasDrifted == b.HasDrifted && a.Generation == b.Generation && a.Passes == b.Passes &&
		a.Lasts == b.Lasts && slices.Equal(a.Failures, b.Failures) && slices.Equal(a.Overridden, b.Overridden)
}

// reconciled is called with the lock held.
func (r *Results) reconciled(namespace string) {
	if _, ok := r.unreconciled[namespace]; ok {
		r.setLacking(namespace, []string{})
		delete(r.unreconciled, namespace)
	}
}
