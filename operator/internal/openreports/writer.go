// Package openreports writes what the operator finds in namespaces to Reports of openreports.io, which dashboards read.
// It is off unless the operator has the flag --open-reports.
//
// Each namespace with findings has one Report, named nstpl. A Report is deleted when the namespace has none left.
// The leader writes Reports after the conditions of namespaces, from the same findings, and nothing waits for them. The
// operator does not watch Reports: it repairs one that a user changed at the next report on the namespace. A Report of
// that name that another client created is left alone.
package openreports

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// retryAfter is how often the API server is asked for Reports while it does not serve them, or denies them.
const retryAfter = 10 * time.Second

// Writer writes Reports. A nil Writer writes nothing. It is safe for concurrent use.
type Writer struct {
	client   client.Client
	metadata metadata.Getter
	queue    workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// wanted has the findings of the namespaces that have some.
	wanted map[string][]populate.Finding
	// written has the UIDs of the operator's Reports by namespace. It is nil until they were listed. A UID is empty if
	// a write failed, so that it is unknown whether there is a Report.
	written map[string]types.UID
}

// NewWriter returns a Writer. The clients are those of the leader, which write nothing while another replica may lead.
func NewWriter(writes client.Client, reads metadata.Interface) *Writer {
	return &Writer{
		client: writes, metadata: reads.Resource(groupVersion.WithResource("reports")),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "openreports"}),
		wanted: map[string][]populate.Finding{},
	}
}

// Report records the findings in a namespace, and queues the Report to be written or deleted. It sends no request.
func (w *Writer) Report(namespace string, findings []populate.Finding) {
	if w == nil {
		return
	}
	findings = important(findings)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(findings) > 0 {
		w.wanted[namespace] = findings
	} else {
		delete(w.wanted, namespace)
	}
	w.queue.Add(namespace) // also without a Report, since one may be being created
}

// Forget drops what is known about a deleted namespace.
func (w *Writer) Forget(namespace string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wanted, namespace)
	delete(w.written, namespace)
}

// Start writes Reports until ctx is done. While the API server does not serve Reports, it tries again from time to
// time, and logs that once.
func (w *Writer) Start(ctx context.Context) error {
	context.AfterFunc(ctx, w.queue.ShutDown)
	isLogged := false
	for ctx.Err() == nil {
		err := w.list(ctx)
		if err == nil {
			isLogged = false
			err = w.work(ctx)
		}
		if err != nil && !isLogged && ctx.Err() == nil {
			isLogged = true
			ctrl.LoggerFrom(ctx).Info("cannot write Reports of openreports.io, and tries again until it can",
				"error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	return nil
}

// list reads the metadata of the operator's Reports, and queues the namespaces that lack one: they go with their
// CustomResourceDefinition.
func (w *Writer) list(ctx context.Context) error {
	found, err := w.metadata.List(ctx, metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + Name})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written = map[string]types.UID{}
	for i := range found.Items {
		if report := &found.Items[i]; report.Name == Name && isOurs(report) {
			w.written[report.Namespace] = report.UID
		}
	}
	for namespace := range w.wanted {
		if w.written[namespace] == "" {
			w.queue.Add(namespace)
		}
	}
	return nil
}

// isOurs reports whether the operator created a Report. A user who may write Reports can forge that.
func isOurs(report *metav1.PartialObjectMetadata) bool {
	return report.Labels[ManagedByLabel] == Name &&
		slices.ContainsFunc(report.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Manager == FieldManager
		})
}

// work writes the Reports of queued namespaces. It returns an error if the API server does not serve Reports any more.
func (w *Writer) work(ctx context.Context) error {
	for {
		namespace, isOver := w.queue.Get()
		if isOver {
			return nil
		}
		err := w.write(ctx, namespace)
		w.queue.Done(namespace)
		switch {
		case err == nil:
			w.queue.Forget(namespace)
		case isMissing(err):
			w.queue.Add(namespace)
			return err
		default:
			w.queue.AddRateLimited(namespace)
			ctrl.LoggerFrom(ctx).Error(err, "cannot write the Report", "namespace", namespace)
		}
	}
}

// isMissing reports whether an error says that the API server does not serve Reports. A write that is forbidden
// concerns only its namespace: a quota there may deny it.
func isMissing(err error) bool {
	return apimeta.IsNoMatchError(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// write writes or deletes the Report of a namespace.
func (w *Writer) write(ctx context.Context, namespace string) error {
	w.mu.Lock()
	findings := w.wanted[namespace]
	uid, mayExist := w.written[namespace]
	w.mu.Unlock()
	var err error
	if len(findings) == 0 && uid == "" {
		if !mayExist {
			return nil
		}
		uid, err = w.find(ctx, namespace)
	}
	switch {
	case err != nil, len(findings) == 0 && uid == "":
	case len(findings) == 0:
		uid, err = "", w.delete(ctx, namespace, uid)
	case uid == "":
		uid, err = w.create(ctx, namespace, findings)
	default:
		err = w.apply(ctx, namespace, findings, uid)
		if apierrors.IsConflict(err) { // another client deleted it, and may have created another one
			uid, err = w.create(ctx, namespace, findings)
		}
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) && !isMissing(err) {
		return nil // the namespace is being deleted, or was
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.written[namespace] = uid; err == nil && uid == "" {
		delete(w.written, namespace)
	}
	return err
}

// find returns the UID of the operator's Report in a namespace, or an empty one.
func (w *Writer) find(ctx context.Context, namespace string) (types.UID, error) {
	stored, err := w.metadata.Namespace(namespace).Get(ctx, Name, metav1.GetOptions{})
	if err != nil || !isOurs(stored) {
		return "", client.IgnoreNotFound(err)
	}
	return stored.UID, nil
}

// create creates a Report and returns its UID. The UID is empty if another client created a Report of this name.
func (w *Writer) create(ctx context.Context, namespace string, findings []populate.Finding) (types.UID, error) {
	report := newReport(namespace, findings)
	err := w.client.Create(ctx, report, client.FieldOwner(FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		return report.GetUID(), err
	}
	stored, err := w.metadata.Namespace(namespace).Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if isOurs(stored) {
		return stored.UID, w.apply(ctx, namespace, findings, stored.UID)
	}
	ctrl.LoggerFrom(ctx).Info("another client created the Report, so it is left alone", "namespace", namespace,
		"name", Name)
	return "", nil
}

// apply replaces the content of the Report with a UID.
func (w *Writer) apply(ctx context.Context, namespace string, findings []populate.Finding, uid types.UID) error {
	report := newReport(namespace, findings)
	report.SetUID(uid)
	data, err := report.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = w.metadata.Namespace(namespace).Patch(ctx, Name, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: FieldManager, Force: new(true)})
	return err
}

// delete deletes the Report with a UID. It succeeds if the Report does not exist.
func (w *Writer) delete(ctx context.Context, namespace string, uid types.UID) error {
	err := w.metadata.Namespace(namespace).Delete(ctx, Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) && !isMissing(err) {
		return nil
	}
	return err
}
