package attribute

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/internal/bindings"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Stored has the webhook configurations as they are stored.
	Stored *webhook.Stored
	Exempt Exempt
}

// Setup adds the enforcement of protected attributes to a manager, and returns the validator.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Admission, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType = runtime.ContentTypeProtobuf // there may be tens of thousands of bindings
	rbac, err := rbacv1client.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	admission, err := NewAdmission(ctx, Sources{
		Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Bindings: bindings.NewWatch(ctx, rbac.RESTClient()),
	}, o.Exempt)
	if err != nil {
		return nil, err
	}
	enforcement := &Enforcement{Leader: o.Leader, Stored: o.Stored, Rules: admission.rules}
	if err := enforcement.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of protected attributes: %w", err)
	}
	return admission, mgr.Add(admission)
}
