package why

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// explainer makes answers. It reads with the permissions of the caller.
type explainer struct {
	cli.Session
	// cluster is nil if there is none: then messages are explained by their codes and words only.
	cluster *cluster.Cluster
	// namespace is that of objects and messages that name none.
	namespace string
	// isExplicit reports whether -n names the namespace.
	isExplicit bool
	// isAssumed reports whether namespace is only a guess about a message: neither the message nor -n names it.
	isAssumed bool
	noted     map[string]bool
	// missing is what missingOperator returns, once it was read.
	missing *string
	// unreached is what unreachedOperator returns, once it was tried.
	unreached *string
}

// addOperator adds that no operator leads, if so: then nothing that an answer says will happen does.
func (e *explainer) addOperator(ctx context.Context, a *answer) {
	missing := e.missingOperator(ctx)
	if missing == "" {
		return
	}
	a.add(labelOperator, missing)
	for i := range a.Facts {
		if f := &a.Facts[i]; f.Label == labelRemedy && strings.HasPrefix(f.Text, "Wait") {
			f.Text = "Start the operator, or ask an administrator to. 'kubectl nstpl check' says why it does not run."
		}
	}
}

// missingOperator says that no operator leads. It is empty if one leads, or if that is unknown.
func (e *explainer) missingOperator(ctx context.Context) string {
	if e.missing == nil && e.cluster != nil {
		e.missing = new(cli.MissingOperator(ctx, e.cluster, "nothing is populated, corrected or opened"))
	}
	return ptr.Deref(e.missing, "")
}

// unreachedOperator says that the API server does not reach the webhooks of the operator, although one may lead. It is
// empty if it reaches them, or if that is unknown.
func (e *explainer) unreachedOperator(ctx context.Context) string {
	if e.unreached == nil {
		e.unreached = new("")
		if cause := e.failedCall(ctx); cause != "" {
			e.unreached = new("the API server does not reach the operator (" + cause + "), so requests about which it decides " +
				"are denied: run 'kubectl nstpl check'")
		}
	}
	return *e.unreached
}

// failedCall returns why the API server does not reach the operator, by a dry run about which it decides, or else by
// the endpoints of its Service.
func (e *explainer) failedCall(ctx context.Context) string {
	err := e.cluster.TryTemplate(ctx)
	if !cluster.MayNotWrite(err) {
		if match := failedWebhook.FindStringSubmatch(fmt.Sprint(err)); match == nil || !isOurWebhook(match[1]) {
			return ""
		}
		return cluster.FailedCall(err)
	}
	endpoints, err := e.cluster.WebhookEndpoints(ctx)
	if err != nil || len(endpoints) == 0 || cluster.ReadyEndpoints(endpoints) > 0 {
		return ""
	}
	return "the Service " + v1alpha1.WebhookService + " has no ready endpoint"
}

// addSync adds that no nstpl-sync leads to the answer about a PolicyRepository, if so: then its status is old.
func (e *explainer) addSync(ctx context.Context, a *answer, live *unstructured.Unstructured) {
	if live.GetKind() != "PolicyRepository" {
		return
	}
	leader, err := e.cluster.Leader(ctx, cluster.SyncLease)
	if !e.isUnread(err, "lease "+cluster.SyncLease+", so it is unknown whether nstpl-sync is running", "") {
		a.add(labelState, cli.NoSync(leader, err))
	}
}

// explainer returns an explainer for the cluster of the kubeconfig. With an error, it can explain messages only.
func (o *why) explainer() (*explainer, error) {
	e := &explainer{Session: o.Session, namespace: corev1.NamespaceDefault, noted: map[string]bool{}}
	namespace, explicit, err := o.Namespace()
	if err != nil {
		return e, err
	}
	e.namespace, e.isExplicit = namespace, explicit
	e.cluster, err = o.Connect()
	return e, err
}

// noteOnce prints a note unless it was printed before.
func (e *explainer) noteOnce(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !e.noted[note] {
		e.noted[note] = true
		e.Note("%s", note)
	}
}

// isUnread reports whether err says that something cannot be read, although the answer goes on without it. It notes
// why: the caller may not read it, or the cluster does not answer. It reports false for nil, and if nothing was found.
func (e *explainer) isUnread(err error, what, granted string) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return false
	case apierrors.IsForbidden(err):
		if granted != "" {
			granted = ": ask for " + granted
		}
		e.noteOnce("you may not read %s%s", what, granted)
	case errors.Is(err, cluster.NotInstalledError{}), errors.As(err, &status):
		e.noteOnce("%v", err)
	default:
		e.noteOnce("the cluster does not answer, so its current state is not shown")
	}
	return true
}

// namedNamespace matches the namespace in a message: kubectl and the API server quote its name.
var namedNamespace = regexp.MustCompile(`(?:\bNamespace: |\bnamespace )"([a-z0-9-]+)"`)

// locate sets the namespace of a message: the one of -n, or else the one that the message names. Without both, it is
// assumed to be that of the current context.
func (e *explainer) locate(message string) {
	if e.isExplicit {
		return
	}
	match := namedNamespace.FindStringSubmatch(message)
	if e.isAssumed = match == nil; match != nil {
		e.namespace = match[1]
	}
}

// noteAssumed notes once that the namespace of a message is only a guess, if so.
func (e *explainer) noteAssumed() {
	if e.isAssumed {
		e.noteOnce("the message names no namespace, so that of the current context, %s, is shown: name the namespace of "+
			"the request with -n", e.namespace)
	}
}

// templates returns all templates. It reports false if they cannot be read.
func (e *explainer) templates(ctx context.Context) ([]*v1alpha1.NamespaceTemplate, bool) {
	templates, err := e.cluster.Templates(ctx)
	return templates, !e.isUnread(err, "namespacetemplates, so the templates are not shown", viewerRole)
}

// mappingOf returns the mapping of a resource as arguments name it: pods, po, deployments.apps or NetworkPolicy.
func (e *explainer) mappingOf(ctx context.Context, argument string) (*meta.RESTMapping, error) {
	kind, err := e.cluster.KindOf(ctx, argument)
	if err != nil {
		return nil, err
	}
	return e.cluster.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
}

// get returns an object. The namespace is ignored if the resource has none.
func (e *explainer) get(
	ctx context.Context, mapping *meta.RESTMapping, namespace, name string,
) (*unstructured.Unstructured, error) {
	if isNamespaced(mapping) {
		return e.cluster.Dynamic.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, getOptions)
	}
	return e.cluster.Dynamic.Resource(mapping.Resource).Get(ctx, name, getOptions)
}

func isNamespaced(mapping *meta.RESTMapping) bool {
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace
}

// named explains an object that arguments name.
func (e *explainer) named(ctx context.Context, resource, name string) (answer, error) {
	if cli.NamespaceResource().Is(resource) {
		a, err := e.namespaceAnswer(ctx, name)
		e.addOperator(ctx, &a)
		return a, err
	}
	mapping, err := e.mappingOf(ctx, resource)
	if err != nil {
		return answer{}, err
	}
	a, live, err := e.object(ctx, mapping, e.namespace, name)
	if live != nil {
		e.addDeniedPods(ctx, &a, live)
	}
	e.addOperator(ctx, &a)
	return a, err
}
