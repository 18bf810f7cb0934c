package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The endpoints.
const (
	mutatePath   = "/mutate"
	validatePath = "/validate"
)

// caller is the Webhook by which the API server asks, as the path says it. It is the value of a context, under
// callerKey.
type caller struct{ plugin, revision string }

type callerKey struct{}

// Serve has a server answer for the chain. Once ending is closed, each answer asks the client for a new connection the
// next time, which leads to another replica: a request that is under way on an old one as the server closes it fails.
// If clients are identified, those without a certificate that the server verified are answered nothing.
func (t Chain) Serve(server webhook.Server, metrics *Metrics, identified bool, ending <-chan struct{}) {
	c := reviewer{chain: t, metrics: metrics}
	register := func(path string, hook http.Handler) {
		server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if identified && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
				http.Error(w, "a client certificate is required", http.StatusUnauthorized)
				return
			}
			select {
			case <-ending:
				w.Header().Set("Connection", "close")
			default:
			}
			hook.ServeHTTP(w, r)
		}))
	}
	register(mutatePath, &ctrladmission.Webhook{Handler: ctrladmission.HandlerFunc(c.mutate)})
	validate := ctrladmission.HandlerFunc(c.validate)
	register(validatePath, &ctrladmission.Webhook{Handler: validate})
	register(validatePath+"/{plugin}/{revision}", &ctrladmission.Webhook{
		Handler: validate,
		WithContextFunc: func(ctx context.Context, r *http.Request) context.Context {
			return context.WithValue(ctx, callerKey{}, caller{r.PathValue("plugin"), r.PathValue("revision")})
		},
	})
}

// reviewer asks the plugins of a chain.
type reviewer struct {
	chain   Chain
	metrics *Metrics
}

// mutate has the object changed by every mutator that handles the request, in the chain's order.
func (c reviewer) mutate(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	request, err := newRequest(r)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	before := request.Object.DeepCopy()
	changed := before
	for i := range c.chain {
		p := &c.chain[i]
		if p.Mutator == nil || request.Object == nil || !p.handles(request) {
			continue
		}
		err := p.Mutator.Mutate(ctx, request)
		if err != nil {
			request.Object = changed.DeepCopy() // half a change is none
		}
		if c.count(ctx, p, err, !equal(changed, request.Object)) {
			return undecided(p, err)
		}
		if refused, ok := errors.AsType[*Denied](err); ok {
			return ctrladmission.Denied(refused.Message).WithWarnings(request.Warnings...)
		}
		changed = request.Object.DeepCopy()
	}
	if equal(before, request.Object) {
		return ctrladmission.Allowed("").WithWarnings(request.Warnings...)
	}
	body, err := json.Marshal(request.Object)
	if err != nil {
		return ctrladmission.Errored(http.StatusInternalServerError, err)
	}
	return ctrladmission.PatchResponseFromRaw(r.Object.Raw, body).WithWarnings(request.Warnings...)
}

// validate asks every validator that handles the request and says all that they object to. A refusal counts for more
// than what could not be decided, and both for more than the wish that the client comes later.
func (c reviewer) validate(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	request, err := newRequest(r)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	by, _ := ctx.Value(callerKey{}).(caller)
	var refusals []string
	var failure *ctrladmission.Response
	var later *Deferred
	for i := range c.chain {
		p := &c.chain[i]
		if p.Validator == nil || !p.handles(request) {
			continue
		}
		if request.Revision = ""; p.Name == by.plugin {
			request.Revision = by.revision
		}
		var refused *Denied
		err := p.Validator.Validate(ctx, request)
		fatal := c.count(ctx, p, err, false)
		switch {
		case errors.As(err, &refused):
			refusals = append(refusals, refused.Message)
		case errors.As(err, &later):
		case fatal:
			failure = new(undecided(p, err))
		}
	}
	var response ctrladmission.Response
	switch {
	case len(refusals) > 0:
		response = ctrladmission.Denied(strings.Join(refusals, "\n"))
	case failure != nil:
		response = *failure
	case later != nil:
		status := apierrors.NewTooManyRequests(later.Message, int(later.After.Seconds())).Status()
		response = ctrladmission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	default:
		response = ctrladmission.Allowed("")
	}
	return response.WithWarnings(request.Warnings...)
}

// count notes what a plugin said, and tells whether it leaves the request undecided and that must not be overlooked.
func (c reviewer) count(ctx context.Context, p *Plugin, err error, changed bool) (fatal bool) {
	verdict := verdictOf(err, changed)
	c.metrics.decisions.WithLabelValues(p.Name, verdict).Inc()
	if verdict != verdictUndecided {
		return false
	}
	ctrl.LoggerFrom(ctx).Error(err, "could not decide", "plugin", p.Name, "failurePolicy", p.FailurePolicy)
	return p.FailurePolicy == admissionregistrationv1.Fail
}

func undecided(p *Plugin, err error) ctrladmission.Response {
	return ctrladmission.Errored(http.StatusInternalServerError, fmt.Errorf("%s could not decide: %w", p.Name, err))
}

func newRequest(r ctrladmission.Request) (*Request, error) {
	request := &Request{Request: r}
	var err error
	if request.Object, err = readObject(r.Object); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	if request.OldObject, err = readObject(r.OldObject); err != nil {
		return nil, fmt.Errorf("read the old object: %w", err)
	}
	return request, nil
}

func readObject(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	if len(raw.Raw) == 0 {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	return object, utiljson.Unmarshal(raw.Raw, &object.Object)
}

// equal compares objects of which either may be missing.
func equal(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}
