// Package webhook answers the admission reviews of the API server.
//
// It decides nothing itself. Features decide: each exports rows of the chain (Plugin), which say what they are asked
// about, which Mutator or Validator decides, and what happens to a request that cannot be decided. The webhook
// configurations are generated from the rows. Mutators run first and in the order of the chain, validators after them;
// the client receives the objections of all validators at once.
//
// A feature uses a webhook only for what CEL cannot decide in the API server: a look-up, an allocation or a wait. The
// other policies are in manifests/admission.
package webhook

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Request is what the API server asks about.
type Request struct {
	ctrladmission.Request
	// Object is what would be stored, nil for a deletion or a connection. Mutators change it.
	Object *unstructured.Unstructured
	// OldObject is what is stored, nil for a creation or a connection.
	OldObject *unstructured.Unstructured
	// Revision is that of the Webhook by which the API server asks, while the plugin is asked whose it is; otherwise it
	// is empty.
	Revision string
	// Warnings are shown to the client whatever is decided.
	Warnings []string
}

// Mutator changes the object of a request, or objects to it by the error Refused. It is never asked about deletions and
// connections.
type Mutator interface {
	Mutate(ctx context.Context, request *Request) error
}

// Validator objects to a request by an error: Refused or Later. Any other error says that it could not decide, and then
// the plugin's failure policy does. It changes nothing but Warnings.
type Validator interface {
	Validate(ctx context.Context, request *Request) error
}

// Refused is an objection: which rule, which object, and what would make the request pass.
type Denied struct{ Message string }

// Deny returns an error with which a plugin denies a request.
func Deny(message string) error { return &Denied{Message: message} }

func (r *Denied) Error() string { return r.Message }

// Later asks the client to repeat the request after a while, or at once if After is 0.
type Deferred struct {
	Message string
	After   time.Duration
}

func (l *Deferred) Error() string { return l.Message }

// givenName is the name of an object, or as much of it as is known before the API server makes the rest.
func GivenName(request *Request) string {
	if request.Name == "" && request.Object != nil {
		return request.Object.GetGenerateName()
	}
	return request.Name
}

// ownWebhook is the revision of the webhooks of a plugin that is to be asked by its own webhook alone.
const OwnWebhook = "own"

// RetryAfter is when a client repeats a request that waits for something which comes soon.
const RetryAfter = time.Second
