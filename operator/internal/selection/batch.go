package selection

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// writeTimeout is how long the write of a batch may take: as long as the API server waits for the first request.
const writeTimeout = 10 * time.Second

// write writes additions into the ConfigMap in one request, and returns once the admission policies use them. It
// returns an error for each addition that does not fit.
func (a *Admission) write(ctx context.Context, additions []addition) (refused []error, err error) {
	var version string
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		configMap, err := a.ConfigMaps.Get(ctx, v1alpha1.SelectorsConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var stored record
		stored, refused = read(configMap).with(additions)
		changed, err := stored.write(configMap)
		if err != nil {
			return err
		}
		if changed {
			if configMap, err = a.ConfigMaps.Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		version = configMap.ResourceVersion
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refused, a.awaitKnown(ctx, version)
}
