package webhook

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nstpl.dev/nstpl/operator/codes"
)

// Request is an admission request.
type Request struct {
	ctrladmission.Request
	// Object is the object that would be stored, or nil if the request deletes an object or connects to one. Mutators
	// change it.
	Object *unstructured.Unstructured
	// OldObject is the stored object, or nil if the request creates an object or connects to one.
	OldObject *unstructured.Unstructured
	// Revision is the revision of the Webhook because of which the API server sent the request. It is set only while
	// the plugin that owns that webhook is called.
	Revision string
	// IsDenied reports whether an earlier plugin of the chain has denied the request, deferred it, or could not decide
	// about it. A validator that would reserve something for the request need not.
	IsDenied bool
	// Warnings are shown to the client whether the request is allowed or denied.
	Warnings []string
}

// Mutator changes the object of a request, or returns a Denied error. It is not called for deletions and connections.
type Mutator interface {
	Mutate(ctx context.Context, request *Request) error
}

// Validator allows a request by returning nil, denies it by Denied, and defers it by Deferred. After any other error,
// the failure policy of the plugin decides. A validator changes nothing in the request but Warnings.
type Validator interface {
	Validate(ctx context.Context, request *Request) error
}

// MutatorFunc is a function that implements Mutator.
type MutatorFunc func(ctx context.Context, request *Request) error

// Mutate calls the function.
func (f MutatorFunc) Mutate(ctx context.Context, request *Request) error { return f(ctx, request) }

// Denied is the error with which a plugin denies a request. The message names the rule, the object, and what would make
// the API server allow the request, and ends in a code.
type Denied struct {
	Message string
	// AlreadyExists says that the request would create an object whose name is taken. If there is no other reason to
	// deny it, the API server reports it with HTTP status 409, as it does by itself.
	AlreadyExists bool
}

// Deny returns a Denied error.
func Deny(code codes.Code, message string) error { return &Denied{Message: code.AddTo(message)} }

// AlreadyExists returns a Denied error for the creation of an object whose name is taken.
func AlreadyExists(resource schema.GroupResource, name string) error {
	return &Denied{Message: apierrors.NewAlreadyExists(resource, name).Error(), AlreadyExists: true}
}

func (d *Denied) Error() string { return d.Message }

// Deferred is the error with which a plugin asks the client to repeat the request after some time, or at once if After
// is 0. The API server reports it with HTTP status 429. The message ends in a code.
type Deferred struct {
	Message string
	After   time.Duration
}

// Defer returns a Deferred error.
func Defer(code codes.Code, message string, after time.Duration) *Deferred {
	return &Deferred{Message: code.AddTo(message), After: after}
}

func (d *Deferred) Error() string { return d.Message }

// GivenName returns the name of the request's object. It returns the generateName if the API server has yet to generate
// the name.
func GivenName(request *Request) string {
	if request.Name == "" && request.Object != nil {
		return request.Object.GetGenerateName()
	}
	return request.Name
}

// OwnWebhook is the revision of a webhook whose content never changes. Its plugin can recognize by it the requests that
// the API server sent because of its own webhook.
const OwnWebhook = "own"

// RetryAfter is the delay of a Deferred request that waits for something which usually takes less than a second.
const RetryAfter = time.Second
