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
	// hintAfter is how long nothing may happen before it is asked whether an operator runs at all.
	hintAfter = 3 * time.Second
	// grace is how long objects may take to be seen once the namespace says that they are there.
	grace = time.Second
)

// waiting waits for a namespace to be populated.
type waiting struct {
	cli.Session
	cluster  *cluster.Cluster
	progress io.Writer
	timeout  time.Duration

	// missing are the objects that are still to arrive, as far as is known.
	missing map[populate.ObjectID]populate.Object
	// declares says that templates are known to match, so that the namespace will say how its population went.
	declares bool
	// unread says why the namespace itself is not known.
	unread error
	// state is the namespace as it was seen last.
	state *corev1.Namespace
}

func (w *waiting) run(ctx context.Context, ns *corev1.Namespace) error {
	expects, err := w.expect(ctx, ns)
	if err != nil || !expects {
		return err
	}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errTimeout)
		defer cancel()
	}
	return w.follow(ctx, ns.Name)
}

var errTimeout = errors.New("timeout")

// expect finds out what is to arrive, and whether there is anything to wait for.
func (w *waiting) expect(ctx context.Context, ns *corev1.Namespace) (bool, error) {
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
	found := survey.Declare(render.NewCache(), match.NewIndex(templates...), ns)
	w.declares = len(found.Templates) > 0
	switch {
	case found.Skipped != "":
		w.Note("namespace/%s is not populated: %s", ns.Name, found.Skipped)
	case !w.declares && !initialize.Initializing(ns):
		w.Note("no template matches namespace/%s: there is nothing to wait for", ns.Name)
	}
	if !w.declares {
		return initialize.Initializing(ns), nil
	}
	for _, omission := range found.Omitted {
		w.Note("%s is left out (template %s): %s", output.Object(omission.Kind.GroupKind(), omission.Name), omission.Template, omission.Reason)
	}
	w.missing = map[populate.ObjectID]populate.Object{}
	for _, object := range found.Objects {
		w.missing[object.ID()] = object
	}
	return true, nil
}

// follow tells what happens until the namespace is open, or says why it isn't populated.
func (w *waiting) follow(ctx context.Context, name string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	news := w.watch(watching, name)
	hint := time.After(hintAfter)
	var end <-chan time.Time
	for !w.over() || len(w.missing) > 0 {
		select {
		case <-ctx.Done():
			return w.giveUp(ctx, name)
		case <-end:
			return w.conclude()
		case <-hint:
			w.hint(ctx)
		case item := <-news:
			switch {
			case item.err != nil:
				return fmt.Errorf("wait for namespace/%s: %w", name, item.err)
			case item.unread != nil:
				w.unread = item.unread
			case item.unwatched != nil:
				w.overlook(*item.unwatched)
			case item.populated != nil:
				w.arrive(*item.populated)
			case item.namespace != nil:
				if w.see(item.namespace); w.over() && end == nil {
					end, hint = time.After(grace), nil
				}
			}
		}
	}
	return w.conclude()
}

// see takes in how the namespace is now. It says once that it waits for others than the operator.
func (w *waiting) see(ns *corev1.Namespace) {
	before := w.state
	w.state, w.unread = ns, nil
	if isPopulated(ns) && initialize.Initializing(ns) && (before == nil || !isPopulated(before)) {
		w.Note("namespace/%s is populated and still waits for %s", ns.Name, ns.Annotations[v1alpha1.PendingAnnotation])
	}
}

// over tells whether nothing more will happen to the namespace: it is open, or can't be populated.
func (w *waiting) over() bool {
	if w.state == nil {
		return false
	}
	if verdict := populatedCondition(w.state); verdict != nil && verdict.Status != corev1.ConditionTrue {
		return true
	}
	return !initialize.Initializing(w.state) && (isPopulated(w.state) || !w.declares)
}

// arrive shows an object that was populated, once.
func (w *waiting) arrive(id populate.ObjectID) {
	if declared, missing := w.missing[id]; missing {
		delete(w.missing, id)
		output.Line(w.progress, "%s populated (template %s)", output.Object(id.GroupKind, id.Name), declared.Template.Name)
	}
}

// overlook stops waiting for the objects of a kind that can't be watched.
func (w *waiting) overlook(kind survey.Unreadable) {
	w.Note("unknown: whether %s arrive: you may not list and watch them in namespace %s", kind.Resource, kind.Namespace)
	maps.DeleteFunc(w.missing, func(id populate.ObjectID, _ populate.Object) bool { return id.GroupKind == kind.Kind })
}

// conclude says how the population went, by the namespace's own word.
func (w *waiting) conclude() error {
	w.sayMissing()
	switch verdict := populatedCondition(w.state); {
	case verdict == nil:
		output.Line(w.progress, "namespace/%s initialized", w.state.Name)
	case verdict.Status != corev1.ConditionTrue:
		return fmt.Errorf("namespace/%s is created and not populated: %s: %s", w.state.Name, verdict.Reason, verdict.Message)
	default:
		output.Line(w.progress, "namespace/%s populated", w.state.Name)
	}
	return nil
}

// giveUp says how far it got.
func (w *waiting) giveUp(ctx context.Context, name string) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("interrupted: namespace/%s is created; kubectl nstpl status %s says when it is populated", name, name)
	}
	if w.unread != nil {
		w.Note("unknown: when namespace/%s is populated: %v: ask for get and watch on namespaces, or have a template grant them", name, w.unread)
		return nil //nolint:nilerr // it was created, and that is what was asked for
	}
	w.sayMissing()
	if w.state != nil && isPopulated(w.state) {
		return fmt.Errorf("namespace/%s is created and populated, and still waits for %s after %s: until then only those with "+
			"the verb initialize may write into it", name, w.state.Annotations[v1alpha1.PendingAnnotation], w.timeout)
	}
	return fmt.Errorf("namespace/%s is created and not populated after %s: kubectl nstpl status %s says when it is", name, w.timeout, name)
}

func (w *waiting) sayMissing() {
	var lines []string
	for id, object := range w.missing {
		lines = append(lines, fmt.Sprintf("missing: %s (template %s)", output.Object(id.GroupKind, id.Name), object.Template.Name))
	}
	slices.Sort(lines)
	for _, line := range lines {
		w.Note("%s", line)
	}
}

// hint says why nothing may have happened: nobody is at work.
func (w *waiting) hint(ctx context.Context) {
	operator, err := w.cluster.Operator(ctx)
	if apierrors.IsNotFound(err) || err == nil && !operator.Running {
		w.Note("no operator is at work (it would hold the lease %s in the namespace %s): see kubectl -n %[2]s get pods",
			v1alpha1.OperatorLease, v1alpha1.OperatorNamespace)
	}
}
