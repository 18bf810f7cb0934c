package policyspace

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// placingProbe is the message by which the operator recognizes the answer to its probe.
const placingProbe = "the operator's namespace cannot be in a policyspace: by such a dry run, the operator checks that " +
	"limits on namespaces are enforced"

// enforcement finds out whether the API server sends the requests that put namespaces into policy spaces with a limit,
// and denies them if no replica answers. It is safe for concurrent use.
type enforcement struct {
	client client.Client

	mu sync.Mutex
	// enforced are the generations of policy spaces, by UID, whose limits are enforced.
	enforced map[types.UID]int64
}

// probe reports whether the limits of a policy space on namespaces are enforced. Once they are, they are as long as the
// policy space has them. The probe is a dry run that puts the operator's namespace into the policy space. It must be
// denied by the webhook that names the policy space: the API server ignores the failures of the webhook for others, and
// uses a configuration that names a new policy space up to a second after it was written. A policy space that was Ready
// under an earlier leader is not probed again, but one of them all is.
func (e *enforcement) probe(ctx context.Context, space *v1alpha1.PolicySpace) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	wasReady := space.Status.ObservedGeneration == space.Generation &&
		apimeta.IsStatusConditionTrue(space.Status.Conditions, v1alpha1.PolicySpaceReady)
	if e.enforced[space.UID] == space.Generation || len(e.enforced) > 0 && wasReady {
		return true, nil
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}}
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, space.Name)
	err := e.client.Status().Patch(ctx, own, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	switch {
	case err == nil:
		return false, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), placingProbe):
		if !strings.Contains(err.Error(), `"`+webhook.FullName(limitedPlugin)+`"`) {
			return false, nil
		}
		e.enforced[space.UID] = space.Generation
		return true, nil
	}
	return false, fmt.Errorf("probe whether limits on namespaces are enforced: %w", err)
}

// reset makes the next probe ask again.
func (e *enforcement) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.enforced)
}

// isPlacingProbe reports whether a request is like a probe. The operator's namespace is never in a policy space.
func isPlacingProbe(request *webhook.Request) bool {
	return isDryRun(request) && request.Object.GetName() == v1alpha1.OperatorNamespace
}
