package selection

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// knownPolicy is the ValidatingAdmissionPolicy that denies the question of awaitKnown.
const knownPolicy = "nstpl-selectors-known"

// The API server knows a version of the ConfigMap after some milliseconds, or later if it is busy. It is asked again
// after firstAsk, and then at growing intervals up to lastAsk.
const (
	firstAsk = 2 * time.Millisecond
	lastAsk  = 100 * time.Millisecond
)

// awaitKnown returns once the admission policies of the API server use a version of the ConfigMap. Other API servers of
// the cluster follow the ConfigMap on their own.
func (a *Admission) awaitKnown(ctx context.Context, resourceVersion string) error {
	question := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SelectorsConfigMap},
		Data:       map[string]string{"resourceVersion": resourceVersion},
	}
	for ask := firstAsk; ; ask = min(2*ask, lastAsk) {
		_, err := a.ConfigMaps.Update(ctx, question, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if !isNotKnownYet(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return webhook.Defer(codes.Busy,
				fmt.Sprintf("the admission policies do not know resourceVersion %s of ConfigMap %s yet: try again",
					resourceVersion, v1alpha1.SelectorsConfigMap), webhook.RetryAfter)
		case <-time.After(ask):
		}
	}
}

func isNotKnownYet(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), knownPolicy)
}
