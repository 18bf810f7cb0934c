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
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

const (
	// operatorCheckAfter is how long to wait before checking once whether an operator runs at all.
	operatorCheckAfter = 3 * time.Second
	// eventsLag is how long the events of objects may come after the namespace says that they are populated.
	eventsLag = time.Second
)

var errTimeout = errors.New("timeout")

// waiter waits for a new namespace to be populated, and prints each object once it is.
//
// The namespace alone decides when the waiting ends: by its Populated condition, and by the label that it has while it
// is initialized. The objects are for the person who waits. Many users may create a namespace and not read it, or not
// read some kinds in it: what they can't see is noted and not waited for.
type waiter struct {
	cli.Session
	cluster *cluster.Cluster
	// progress gets a line for each populated object.
	progress io.Writer
	// timeout is how long to wait, or 0 to wait forever.
	timeout time.Duration

	// missing are the declared objects that are not populated yet, as far as they are known.
	missing map[populate.ObjectID]populate.Object
	// hasTemplates reports whether templates are known to select the namespace, so that it will get a Populated
	// condition.
	hasTemplates bool
	// latest is the namespace as it was last read, or nil.
	latest *corev1.Namespace
	// forbidden is why the namespace could not be read last, or nil.
	forbidden error
}

// run waits for ns, which was just created.
func (w *waiter) run(ctx context.Context, ns *corev1.Namespace) error {
	needed, err := w.prepare(ctx, ns)
	if err != nil || !needed {
		return err
	}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errTimeout)
		defer cancel()
	}
	return w.wait(ctx, ns.Name)
}

// prepare finds out which objects templates declare for the namespace. It returns false if there is nothing to wait
// for.
func (w *waiter) prepare(ctx context.Context, ns *corev1.Namespace) (needed bool, err error) {
	templates, err := w.cluster.Templates(ctx)
	switch {
	case errors.Is(err, cluster.NotInstalledError{}):
		w.Note("%v", err)
		return false, nil
	case apierrors.IsForbidden(err):
		w.Note("unknown: which objects are to arrive: %v", err)
		if !initialize.Initializing(ns) {
			w.Note("nothing initializes namespace/%s: there is nothing to wait for", ns.Name)
		}
		return initialize.Initializing(ns), nil
	case err != nil:
		return false, err
	}
	declared := survey.Declare(render.NewCache(), match.NewIndex(templates...), ns)
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
	for _, omission := range declared.Omitted {
		w.Note("%s is left out (template %s): %s", output.Object(omission.Kind.GroupKind(), omission.Name),
			omission.Template, omission.Reason)
	}
	w.missing = map[populate.ObjectID]populate.Object{}
	for _, object := range declared.Objects {
		w.missing[object.ID()] = object
	}
	return true, nil
}

// wait handles events until the namespace is done, or ctx is.
func (w *waiter) wait(ctx context.Context, name string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := w.watch(watching, name)
	operatorCheck := time.After(operatorCheckAfter)
	var end <-chan time.Time
	for !w.isDone() || len(w.missing) > 0 {
		select {
		case <-ctx.Done():
			return w.interrupted(ctx, name)
		case <-end:
			return w.finish()
		case <-operatorCheck:
			w.noteMissingOperator(ctx)
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

// setLatest notes, once, that the namespace is populated and waits for other initializers than the operator.
func (w *waiter) setLatest(ns *corev1.Namespace) {
	wasPopulated := w.latest != nil && isPopulated(w.latest)
	w.latest, w.forbidden = ns, nil
	if isPopulated(ns) && initialize.Initializing(ns) && !wasPopulated {
		w.Note("namespace/%s is populated and still waits for %s", ns.Name, ns.Annotations[v1alpha1.PendingAnnotation])
	}
}

// isDone reports whether the namespace will not change any more: its population failed, or it is populated and
// initialized.
func (w *waiter) isDone() bool {
	if w.latest == nil {
		return false
	}
	if condition := populatedCondition(w.latest); condition != nil && condition.Status != corev1.ConditionTrue {
		return true
	}
	return !initialize.Initializing(w.latest) && (isPopulated(w.latest) || !w.hasTemplates)
}

// printPopulated prints a declared object, once.
func (w *waiter) printPopulated(id populate.ObjectID) {
	if declared, missing := w.missing[id]; missing {
		delete(w.missing, id)
		output.Line(w.progress, "%s populated (template %s)", output.Object(id.GroupKind, id.Name),
			declared.Template.Name)
	}
}

// forgetKind stops waiting for the objects of a kind that the user may not watch.
func (w *waiter) forgetKind(kind survey.Unreadable) {
	w.Note("unknown: whether %s arrive: you may not list and watch them in namespace %s", kind.Resource, kind.Namespace)
	maps.DeleteFunc(w.missing, func(id populate.ObjectID, _ populate.Object) bool { return id.GroupKind == kind.Kind })
}

// finish reports how the population of the namespace ended.
func (w *waiter) finish() error {
	w.noteMissing()
	switch condition := populatedCondition(w.latest); {
	case condition == nil:
		output.Line(w.progress, "namespace/%s initialized", w.latest.Name)
	case condition.Status != corev1.ConditionTrue:
		return fmt.Errorf("namespace/%s is created and not populated: %s: %s", w.latest.Name, condition.Reason,
			condition.Message)
	default:
		output.Line(w.progress, "namespace/%s populated", w.latest.Name)
	}
	return nil
}

// interrupted reports how far the population went when the time was up or the user pressed Ctrl-C.
func (w *waiter) interrupted(ctx context.Context, name string) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("interrupted: namespace/%s is created; kubectl nstpl status %s says when it is populated",
			name, name)
	}
	if w.forbidden != nil {
		w.Note(
			"unknown: when namespace/%s is populated: %v: ask for get and watch on namespaces, or have a template grant them", name, w.forbidden)
		return nil //nolint:nilerr // the namespace was created, which is what the user asked for
	}
	w.noteMissing()
	if w.latest != nil && isPopulated(w.latest) {
		return fmt.Errorf("namespace/%s is created and populated, and still waits for %s after %s: until then only those with "+
			"the verb initialize may write into it", name, w.latest.Annotations[v1alpha1.PendingAnnotation], w.timeout)
	}
	return fmt.Errorf("namespace/%s is created and not populated after %s: kubectl nstpl status %s says when it is",
		name, w.timeout, name)
}

func (w *waiter) noteMissing() {
	var lines []string
	for id, object := range w.missing {
		lines = append(lines,
			fmt.Sprintf("missing: %s (template %s)", output.Object(id.GroupKind, id.Name), object.Template.Name))
	}
	slices.Sort(lines)
	for _, line := range lines {
		w.Note("%s", line)
	}
}

// noteMissingOperator notes that no operator runs, if so. It is silent if the user may not read the operator's lease.
func (w *waiter) noteMissingOperator(ctx context.Context) {
	operator, err := w.cluster.Operator(ctx)
	if apierrors.IsNotFound(err) || err == nil && !operator.Running {
		w.Note("no operator is at work (it would hold the lease %s in the namespace %s): see kubectl -n %[2]s get pods",
			v1alpha1.OperatorLease, v1alpha1.OperatorNamespace)
	}
}
