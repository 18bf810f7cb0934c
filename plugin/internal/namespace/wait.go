package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// eventsLag is the longest time that the waiter still waits for the events of objects after the namespace is done.
const eventsLag = time.Second

// notPopulatedMeanwhile is what a missing operator means for a new namespace.
const notPopulatedMeanwhile = "the namespace is not populated meanwhile"

// waiter waits until a new namespace is populated, and prints each object when it is populated.
//
// Only the namespace decides when the waiting ends: its Populated condition, and the label that it has until it is
// initialized. The objects just show the progress. Many users may create a namespace but not read it, or not read some
// kinds in it. The waiter prints a note about what it cannot read and does not wait for it.
type waiter struct {
	cli.Session
	cluster *cluster.Cluster
	// progress gets a line for each populated object.
	progress io.Writer
	// timeout is the length of time to wait, or 0 to wait forever.
	timeout time.Duration

	// missing holds the declared objects that are not populated yet. It is nil if the declared objects are unknown.
	missing map[populate.ObjectID]populate.Object
	// hasTemplates reports whether a template selects the namespace, so that it will get a Populated condition. It is
	// false if the templates are unknown.
	hasTemplates bool
	// latest is the namespace as it was last read, or nil.
	latest *corev1.Namespace
	// forbidden is the error of the last attempt to read the namespace if the user may not read it, or nil.
	forbidden error
}

// run waits until ns, a namespace that was just created, is populated.
func (w *waiter) run(ctx context.Context, ns *corev1.Namespace) error {
	needed, err := w.prepare(ctx, ns)
	switch {
	case ctx.Err() != nil:
		return w.interrupted(ctx, ns.Name) // whatever the request that was under way returned
	case err != nil || !needed:
		return err
	}
	ctx, cancel := cli.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.wait(ctx, ns.Name)
}

// prepare sets which objects templates declare for the namespace. Needed reports whether there is anything to wait for.
func (w *waiter) prepare(ctx context.Context, ns *corev1.Namespace) (needed bool, err error) {
	templates, err := w.cluster.Templates(ctx)
	switch {
	case errors.Is(err, cluster.NotInstalledError{}):
		w.Note("%v", err)
		return false, nil
	case apierrors.IsForbidden(err):
		w.Note("you may not list namespacetemplates, so the objects are not shown")
		return w.isHeld(ctx, ns)
	case err != nil:
		return false, err
	}
	if ns, err = withSpaceLabels(ctx, w.Session, w.cluster, ns); err != nil {
		return false, err
	}
	index, unread := w.cluster.Index(ctx, templates, []*corev1.Namespace{ns})
	for _, err := range unread {
		w.Note("%v", err)
	}
	declared := survey.Declare(render.NewCache(), nil, index, ns)
	w.hasTemplates = len(declared.Templates) > 0
	switch {
	case declared.Skipped != "":
		w.Note("namespace/%s is not populated: %s", ns.Name, declared.Skipped)
	case !w.hasTemplates && !initialize.Initializing(ns):
		w.Note("no template matches namespace/%s: there is nothing to wait for", ns.Name)
	}
	if !w.hasTemplates {
		return initialize.Initializing(ns), nil
	}
	for _, finding := range declared.Findings() {
		if finding.Reason == populate.FindingCreatorUnknown || finding.Reason == populate.FindingRoleOverridden {
			w.Note("%s", finding)
		}
	}
	w.missing = map[populate.ObjectID]populate.Object{}
	for _, object := range declared.Objects {
		w.missing[object.ID()] = object
	}
	return true, nil
}

// isHeld reports whether a new namespace has pending initializers. Admission sets them when it records the creator.
// Before Kubernetes 1.36, that is a webhook of the operator, without which the API server creates the namespace as it
// is: then it is unknown whether templates select it.
func (w *waiter) isHeld(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	isInitializing := initialize.Initializing(ns)
	if reason := survey.UnpopulatedReason(ns); reason != "" {
		w.Note("namespace/%s is not populated: %s", ns.Name, reason)
		return isInitializing, nil
	}
	if isInitializing {
		return true, nil
	}
	if ns.Annotations[v1alpha1.CreatorAnnotation] == "" {
		if missing := cli.MissingOperator(ctx, w.cluster, notPopulatedMeanwhile); missing != "" {
			return false, errUnknownPopulation(ns.Name, missing)
		}
	}
	w.Note("namespace/%s has no pending initializers: there is nothing to wait for", ns.Name)
	return false, nil
}

func errUnknownPopulation(name, missing string) error {
	return fmt.Errorf("namespace/%s was created, but it is unknown whether it is populated: %s", name, missing)
}

// wait handles events until the namespace is done or ctx ends.
func (w *waiter) wait(ctx context.Context, name string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := w.watch(watching, name)
	operatorCheck := time.After(cli.OperatorCheckAfter)
	var end <-chan time.Time
	for !w.isDone() || len(w.missing) > 0 {
		select {
		case <-ctx.Done():
			return w.interrupted(ctx, name)
		case <-end:
			return w.finish()
		case <-operatorCheck:
			w.NoteMissingOperator(ctx, w.cluster, notPopulatedMeanwhile)
		case e := <-events:
			if e.err != nil {
				return fmt.Errorf("wait for namespace/%s: %w", name, e.err)
			}
			w.handle(e)
			if w.isDone() && end == nil {
				end, operatorCheck = time.After(eventsLag), nil
			}
		}
	}
	return w.finish()
}

func (w *waiter) handle(e event) {
	switch {
	case e.forbidden != nil:
		w.forbidden = e.forbidden
	case e.unwatchable != nil:
		w.forgetKind(*e.unwatchable)
	case e.populated != nil:
		w.printPopulated(*e.populated)
	case e.namespace != nil:
		w.setLatest(e.namespace)
	}
}

// isPopulated reports whether the Populated condition of a namespace is true.
func isPopulated(ns *corev1.Namespace) bool {
	condition := populate.PopulatedCondition(ns)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// setLatest stores the namespace. The first time that the namespace is populated but still has pending initializers, it
// prints a note with their names.
func (w *waiter) setLatest(ns *corev1.Namespace) {
	wasPopulated := w.latest != nil && isPopulated(w.latest)
	w.latest, w.forbidden = ns, nil
	if isPopulated(ns) && initialize.Initializing(ns) && !wasPopulated {
		w.Note("namespace/%s is populated but still waits for %s", ns.Name, ns.Annotations[v1alpha1.PendingAnnotation])
	}
}

// isDone reports whether there is nothing left to wait for: the namespace is being deleted, or it cannot be populated
// until a person acts, or it is populated and initialized. The waiter goes on while the operator retries failures that
// may pass.
func (w *waiter) isDone() bool {
	if w.latest == nil {
		return false
	}
	if w.latest.DeletionTimestamp != nil {
		return true
	}
	if survey.UnpopulatedReason(w.latest) != "" {
		return !initialize.Initializing(w.latest)
	}
	if populate.HasFailed(populate.PopulatedCondition(w.latest)) {
		return true
	}
	return !initialize.Initializing(w.latest) && (isPopulated(w.latest) || !w.hasTemplates)
}

// printPopulated prints a declared object the first time that it is populated.
func (w *waiter) printPopulated(id populate.ObjectID) {
	if declared, missing := w.missing[id]; missing {
		delete(w.missing, id)
		output.Line(w.progress, "%s populated (template %s)", id, declared.Template.Name)
	}
}

// forgetKind stops waiting for the objects of a kind that the user may not watch.
func (w *waiter) forgetKind(kind survey.Unreadable) {
	w.Note("cannot list and watch %s in namespace %s, so their creation is not shown", kind.Resource, kind.Namespace)
	maps.DeleteFunc(w.missing, func(id populate.ObjectID, _ populate.Object) bool { return id.GroupKind == kind.Kind })
}

// finish prints the result of the population. It returns an error if the population failed, or if the namespace is
// being deleted.
func (w *waiter) finish() error {
	if w.latest.DeletionTimestamp != nil {
		return fmt.Errorf("namespace/%s was created, but is being deleted again", w.latest.Name)
	}
	if reason := survey.UnpopulatedReason(w.latest); reason != "" {
		w.Note("namespace/%s is not populated: %s", w.latest.Name, reason)
		return nil
	}
	w.noteMissing()
	switch condition := populate.PopulatedCondition(w.latest); {
	case condition == nil:
		output.Line(w.progress, "namespace/%s initialized", w.latest.Name)
	case condition.Status != corev1.ConditionTrue:
		return fmt.Errorf("namespace/%s was created but is not populated: %s: %s", w.latest.Name, condition.Reason,
			condition.Message)
	default:
		output.Line(w.progress, "namespace/%s populated", w.latest.Name)
	}
	return nil
}

// interrupted returns the error for the state of the namespace when the timeout passed or the user interrupted the
// command. It returns nil if the user may not read the namespace.
func (w *waiter) interrupted(ctx context.Context, name string) error {
	if !cli.TimedOut(ctx) {
		return fmt.Errorf("interrupted: namespace/%s was created: "+
			"run 'kubectl nstpl status %[1]s' to check whether it is populated", name)
	}
	if w.forbidden != nil {
		// The context of the command has ended.
		missing := cli.MissingOperator(context.WithoutCancel(ctx), w.cluster, notPopulatedMeanwhile)
		if missing != "" {
			return errUnknownPopulation(name, missing)
		}
		w.Note("namespace/%s was created, but it is unknown whether it is populated: %v: "+
			"ask for the verbs get and watch on namespaces, or for a template that grants them", name, w.forbidden)
		return nil // the namespace was created, which is what the user asked for
	}
	w.noteMissing()
	if w.latest != nil && isPopulated(w.latest) {
		return fmt.Errorf("namespace/%s was created and populated, but still waits for %s after %s: "+
			"until then, only users with the verb initialize may write to it",
			name, w.latest.Annotations[v1alpha1.PendingAnnotation], w.timeout)
	}
	var why string
	if w.latest != nil {
		if condition := populate.PopulatedCondition(w.latest); condition != nil {
			why = fmt.Sprintf("%s: %s: ", condition.Reason, condition.Message)
		}
	}
	return fmt.Errorf("namespace/%s was created but is not populated after %s: %s"+
		"run 'kubectl nstpl status %[1]s' to check again", name, w.timeout, why)
}

func (w *waiter) noteMissing() {
	var lines []string
	for id, object := range w.missing {
		lines = append(lines,
			fmt.Sprintf("missing: %s (template %s)", id, object.Template.Name))
	}
	slices.Sort(lines)
	for _, line := range lines {
		w.Note("%s", line)
	}
}
