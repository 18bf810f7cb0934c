package selection

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/selectors"
)

// newOptOutCache returns a cache of the ConfigMap nstpl-auto-opt-out. The manager's cache has nstpl-selectors, and a
// cache selects the objects of a kind by one name only, which the operator's permissions require.
func newOptOutCache(mgr ctrl.Manager) (cache.Cache, error) {
	return cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{v1alpha1.OperatorNamespace: {
				FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.AutoOptOutConfigMap),
			}}},
		},
	})
}

// optOuts returns the users and groups in nstpl-auto-opt-out, and none if it does not exist. If they are too many, it
// returns those before.
func (r *Controller) optOuts(ctx context.Context, before selectors.OptOuts) (selectors.OptOuts, error) {
	optOuts, err := readOptOuts(ctx, r.lists)
	if err == nil && !maps.Equal(optOuts, before) {
		// The cache of a new leader may be older than what the previous leader has copied.
		optOuts, err = readOptOuts(ctx, r.live)
	}
	if err != nil {
		return nil, err
	}
	if err := optOuts.Check(); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "a change of the users and groups that are opted out is not in force")
		return before, nil
	}
	return optOuts, nil
}

func readOptOuts(ctx context.Context, reader client.Reader) (selectors.OptOuts, error) {
	lists := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.AutoOptOutConfigMap}
	if err := reader.Get(ctx, key, lists); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", v1alpha1.AutoOptOutConfigMap, err)
	}
	return selectors.OptOutsOf(lists.Data), nil
}
