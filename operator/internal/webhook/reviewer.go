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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nstpl.dev/nstpl/operator/codes"
)

// The URL paths of the endpoints.
const (
	mutatePath   = "/mutate"
	validatePath = "/validate"
	probePath    = "/probe"
)

// caller is the Webhook because of which the API server sent a request, as the URL path names it. It is a value of the
// request's context, under callerKey.
type caller struct{ plugin, revision string }

type callerKey struct{}

// Serve registers the endpoints of the chain with a server. After ending is closed, each response closes its
// connection, so that the API server opens the next one to another replica: requests on connections that are open when
// the server stops would fail. If identified is true, clients without a verified certificate get status 401.
func (c Chain) Serve(server ctrlwebhook.Server, metrics *Metrics, identified bool, ending <-chan struct{}) {
	r := reviewer{chain: c, metrics: metrics}
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
	register(probePath, &ctrladmission.Webhook{Handler: ctrladmission.HandlerFunc(denyProbe)})
	for path, handler := range map[string]ctrladmission.HandlerFunc{mutatePath: r.mutate, validatePath: r.validate} {
		register(path, &ctrladmission.Webhook{Handler: handler})
		register(path+"/{plugin}/{revision}", &ctrladmission.Webhook{
			Handler: handler,
			WithContextFunc: func(ctx context.Context, r *http.Request) context.Context {
				return context.WithValue(ctx, callerKey{}, caller{r.PathValue("plugin"), r.PathValue("revision")})
			},
		})
	}
}

// revisionFor returns the revision of the webhook because of which the API server sent a request, if it is a plugin's.
func revisionFor(ctx context.Context, p *Plugin) string {
	if by, _ := ctx.Value(callerKey{}).(caller); by.plugin == p.Name {
		return by.revision
	}
	return ""
}

// reviewer answers AdmissionReviews by the decisions of a chain's plugins.
type reviewer struct {
	chain   Chain
	metrics *Metrics
}

// mutate calls every mutator that handles the request, in the order of the chain.
func (r reviewer) mutate(ctx context.Context, review ctrladmission.Request) ctrladmission.Response {
	request, err := newRequest(review)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	before := request.Object.DeepCopy()
	changed := before
	for i := range r.chain {
		p := &r.chain[i]
		if p.Mutator == nil || request.Object == nil || !p.handles(request) {
			continue
		}
		request.Revision = revisionFor(ctx, p)
		err := p.Mutator.Mutate(ctx, request)
		if err != nil {
			request.Object = changed.DeepCopy() // drop what the mutator changed before it failed
		}
		if r.count(ctx, p, err, !equal(changed, request.Object)) {
			return undecided(p, err)
		}
		if denied, ok := errors.AsType[*Denied](err); ok {
			return ctrladmission.Denied(denied.Message).WithWarnings(request.Warnings...)
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
	return ctrladmission.PatchResponseFromRaw(review.Object.Raw, body).WithWarnings(request.Warnings...)
}

// validate calls the validators that handle the request, and joins their decisions.
func (r reviewer) validate(ctx context.Context, review ctrladmission.Request) ctrladmission.Response {
	request, err := newRequest(review)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	var decisions decisions
	for i := range r.chain {
		p := &r.chain[i]
		if p.Validator == nil || !p.handles(request) {
			continue
		}
		request.Revision = revisionFor(ctx, p)
		request.IsDenied = decisions.areNegative()
		err := p.Validator.Validate(ctx, request)
		decisions.add(p, err, r.count(ctx, p, err, false))
		if p.DecidesFirst && decisions.areNegative() {
			break
		}
	}
	return decisions.response().WithWarnings(request.Warnings...)
}

// decisions are those of the validators of one request.
type decisions struct {
	denials []string
	// alreadyExists says that the only denial is one because the object exists.
	alreadyExists bool
	failure       *ctrladmission.Response
	deferral      *Deferred
}

// add adds the decision of a plugin. If fatal is true, the plugin could not decide and its failure policy is Fail.
func (d *decisions) add(p *Plugin, err error, fatal bool) {
	var denied *Denied
	switch {
	case errors.As(err, &denied):
		d.alreadyExists = denied.AlreadyExists && len(d.denials) == 0
		d.denials = append(d.denials, denied.Message)
	case errors.As(err, &d.deferral):
	case fatal:
		d.failure = new(undecided(p, err))
	}
}

// areNegative reports whether the request is not allowed by the decisions so far.
func (d *decisions) areNegative() bool {
	return len(d.denials) > 0 || d.failure != nil || d.deferral != nil
}

// response returns the answer to the API server: a denial takes precedence over a failure, and a failure
// over a deferral.
func (d *decisions) response() ctrladmission.Response {
	switch {
	case d.alreadyExists:
		return ctrladmission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
			Message: d.denials[0],
		}}}
	case len(d.denials) > 0:
		return ctrladmission.Denied(strings.Join(d.denials, "\n"))
	case d.failure != nil:
		return *d.failure
	case d.deferral != nil:
		status := apierrors.NewTooManyRequests(d.deferral.Message, int(d.deferral.After.Seconds())).Status()
		return ctrladmission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	}
	return ctrladmission.Allowed("")
}

// count counts the verdict of a plugin. It reports whether the plugin could not decide and its failure policy is Fail.
func (r reviewer) count(ctx context.Context, p *Plugin, err error, changed bool) (fatal bool) {
	verdict := verdictOf(err, changed)
	r.metrics.decisions.WithLabelValues(p.Name, verdict).Inc()
	if verdict != verdictUndecided {
		return false
	}
	ctrl.LoggerFrom(ctx).Error(err, "could not decide", "plugin", p.Name, "failurePolicy", p.FailurePolicy)
	return p.FailurePolicy == admissionregistrationv1.Fail
}

func undecided(p *Plugin, err error) ctrladmission.Response {
	return ctrladmission.Errored(http.StatusInternalServerError,
		errors.New(codes.Undecided.AddTo(fmt.Sprintf("%s could not decide: %v", p.Name, err))))
}

func newRequest(review ctrladmission.Request) (*Request, error) {
	request := &Request{Request: review}
	var err error
	if request.Object, err = decodeObject(review.Object); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	if request.OldObject, err = decodeObject(review.OldObject); err != nil {
		return nil, fmt.Errorf("decode the old object: %w", err)
	}
	return request, nil
}

func decodeObject(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	if len(raw.Raw) == 0 {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	return object, utiljson.Unmarshal(raw.Raw, &object.Object)
}

// equal reports whether two objects, each of which may be nil, have the same content.
func equal(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}
