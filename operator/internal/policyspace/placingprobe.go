package policyspace

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// placingProbe is the message by which the operator recognizes the answer to its probe.
const placingProbe = "the operator's namespace cannot be in a policyspace: by such a dry run, the operator checks that " +
	"limits on namespaces are enforced"

// enforcement finds out whether the API server sends the requests that put namespaces into policy spaces. It is safe
// for concurrent use.
type enforcement struct {
	client client.Client

	mu         sync.Mutex
	isEnforced bool
}

// probe reports whether the API server sends such requests. Once it does, it does so as long as some policy space
// limits the number of namespaces. The probe is a dry run that puts the operator's namespace into a policy space.
func (e *enforcement) probe(ctx context.Context, space string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isEnforced {
		return true, nil
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}}
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, space)
	err := e.client.Status().Patch(ctx, own, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	switch {
	case err == nil:
		return false, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), placingProbe):
		e.isEnforced = true
		return true, nil
	}
	return false, fmt.Errorf("probe whether limits on namespaces are enforced: %w", err)
}

// reset makes the next probe ask again.
func (e *enforcement) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isEnforced = false
}

// isPlacingProbe reports whether a request is like a probe. The operator's namespace is never in a policy space.
func isPlacingProbe(request *webhook.Request) bool {
	return isDryRun(request) && request.Object.GetName() == v1alpha1.OperatorNamespace
}
