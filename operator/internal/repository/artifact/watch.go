package artifact

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The pauses before a watch that failed or ended is begun again. Each is twice the one before it.
const (
	minPause = 500 * time.Millisecond
	maxPause = time.Minute
)

// Watch calls changed when the artifact of an object, or the reason why it has none, may have changed, until ctx is
// done. It also does so at the beginning if the object exists. A kind that is not installed yet is watched within a
// minute after it is installed.
func Watch(ctx context.Context, objects dynamic.Interface, ref v1alpha1.ArtifactSource, changed func()) {
	client, err := resource(objects, ref)
	if err != nil {
		return // Find returns the same error
	}
	seen := newState(nil, ref)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		events, err := client.Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String(),
		})
		if err == nil {
			if seen = observe(events, ref, seen, changed); seen.isKnown {
				pause = minPause
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// state is what a change of an object may change for its followers.
type state struct {
	isKnown  bool
	artifact Artifact
	problem  string
}

// newState returns the state of an object, or of one that does not exist if it is nil.
func newState(object *unstructured.Unstructured, ref v1alpha1.ArtifactSource) state {
	if object == nil {
		return state{}
	}
	s := state{isKnown: true}
	artifact, err := of(object, ref)
	if err != nil {
		s.problem = err.Error()
		return s
	}
	s.artifact = *artifact
	return s
}

// observe calls changed for each event of a watch after which the object has another state. It returns the last state
// when the watch ends.
func observe(events watch.Interface, ref v1alpha1.ArtifactSource, seen state, changed func()) state {
	defer events.Stop()
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error || event.Type == watch.Bookmark {
			continue
		}
		if event.Type == watch.Deleted {
			object = nil
		}
		if next := newState(object, ref); next != seen {
			seen = next
			changed()
		}
	}
	return seen
}
