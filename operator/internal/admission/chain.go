// Package admission decides on requests that the API server asks about: what CEL can't decide, because it needs a
// look-up, an allocation or a wait (manifests/admission has the rest). Its shape is that of "Admission control
// changes": mutators go first and in order, validators after them and in none, and what all of them object to is said
// at once.
package admission

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
type Refused struct{ Message string }

func (r *Refused) Error() string { return r.Message }

// Later asks the client to repeat the request after a while, or at once if After is 0.
type Later struct {
	Message string
	After   time.Duration
}

func (l *Later) Error() string { return l.Message }
