package objects

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// unknownAfter is how long the API server may refuse to list and watch a kind before its objects are unknown. When a
// CustomResourceDefinition or a ClusterRole changes, or an API server starts, it may refuse for a moment.
const unknownAfter = 10 * time.Second

// retries are the intervals after which a list or a watch that failed is tried again. No event tells of a right that is
// given back, or of an aggregated API that answers again.
var retries = wait.Backoff{
	Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second,
}

// served is how the API server serves a kind.
type served struct {
	resource schema.GroupVersionResource
	typeMeta metav1.TypeMeta
}

func (k *kind) serve(mapping *meta.RESTMapping) {
	apiVersion, name := mapping.GroupVersionKind.ToAPIVersionAndKind()
	k.served.Store(&served{mapping.Resource, metav1.TypeMeta{APIVersion: apiVersion, Kind: name}})
}

// outage is a time in which the API server refuses to list and watch a kind.
type outage struct {
	// isLong is true after unknownAfter. The objects are unknown then.
	isLong bool
	timer  *time.Timer
}

// refuse begins an outage, if err is an answer of the API server. If it does not answer at all, nothing of the cluster
// is known, and nothing can be written. The caller holds the lock.
func (k *kind) refuse(err error) {
	var status apierrors.APIStatus
	isAnswer := errors.As(err, &status)
	if k.outage != nil || !isAnswer && !meta.IsNoMatchError(err) {
		return
	}
	begun := &outage{}
	begun.timer = time.AfterFunc(unknownAfter, func() { k.lose(begun) })
	k.outage = begun
}

// lose records that the objects of the kind are unknown, unless the outage has ended meanwhile.
func (k *kind) lose(begun *outage) {
	k.mu.Lock()
	lasts := k.outage == begun
	begun.isLong = true
	k.mu.Unlock()
	if lasts {
		k.turned()
	}
}

// answered ends an outage.
func (k *kind) answered() {
	k.mu.Lock()
	ended := k.outage
	k.outage = nil
	wasLong := ended != nil && ended.isLong
	k.mu.Unlock()
	if ended != nil {
		ended.timer.Stop()
	}
	if wasLong {
		k.turned()
	}
}
