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

// Setup adds the enforcement of protected attributes to a manager, and returns the validator.
func Setup(
	ctx context.Context, mgr ctrl.Manager, leader *leadership.Leader, stored *webhook.Stored, exempt Exempt,
) (*Admission, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType = runtime.ContentTypeProtobuf // there may be tens of thousands of bindings
	rbac, err := rbacv1client.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	admission, err := NewAdmission(ctx, mgr.GetCache(), mgr.GetAPIReader(), bindings.NewWatch(ctx, rbac.RESTClient()),
		exempt)
	if err != nil {
		return nil, err
	}
	enforcement := &Enforcement{Client: leader.Client, Stored: stored, Rules: admission.rules, Queues: leader.Queues}
	if err := enforcement.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of protected attributes: %w", err)
	}
	return admission, mgr.Add(admission)
}
