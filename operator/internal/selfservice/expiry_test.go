package selfservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// oneNamespace is a client that reads a namespace, and records how it is deleted and what its status gets.
type oneNamespace struct {
	client.Client
	ns      *corev1.Namespace
	deleted *metav1.Preconditions
	// refusal is the answer to the deletion.
	refusal error
	status  string
}

func (c *oneNamespace) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.ns.DeepCopyInto(into.(*corev1.Namespace))
	return nil
}

func (c *oneNamespace) Delete(_ context.Context, _ client.Object, options ...client.DeleteOption) error {
	c.deleted = (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
	return c.refusal
}

func (c *oneNamespace) Status() client.SubResourceWriter { return statusOf{namespace: c} }

// statusOf records the conditions of a namespace.
type statusOf struct {
	client.SubResourceWriter
	namespace *oneNamespace
}

func (s statusOf) Patch(
	_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(object)
	s.namespace.status = string(data)
	return err
}

// expired returns a namespace that has expired, and whose users have consented to its deletion.
func expired() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "sandbox", UID: "1", ResourceVersion: "7", Labels: map[string]string{"tier": "gold"},
		Annotations: map[string]string{
			v1alpha1.ExpiresAnnotation: "2026-01-01T00:00:00Z", v1alpha1.DeleteWhenExpiredAnnotation: "true",
		},
	}}
}

// Each namespace has expired, and is the one that was read if it is deleted.
func TestExpiredNamespacesThatAreDeleted(t *testing.T) {
	t.Parallel()
	rule := func(guards bool) []v1alpha1.ClusterProtectedAttribute {
		return []v1alpha1.ClusterProtectedAttribute{{
			ObjectMeta: metav1.ObjectMeta{Name: "tier"}, AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: "tier", GuardDeletion: guards,
			},
		}}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Namespace)
		rules  []v1alpha1.ClusterProtectedAttribute
		want   bool
	}{
		"with consent": {want: true},
		"without consent": {
			change: func(ns *corev1.Namespace) { delete(ns.Annotations, v1alpha1.DeleteWhenExpiredAnnotation) },
		},
		"protected": {
			change: func(ns *corev1.Namespace) { ns.Annotations[v1alpha1.DeletionProtectionAnnotation] = "true" },
		},
		"with a label that is guarded": {rules: rule(true)},
		"with a label that is protected, but not guarded": {
			rules: append(rule(false), v1alpha1.ClusterProtectedAttribute{
				ObjectMeta: metav1.ObjectMeta{Name: "other"}, AttributeRule: v1alpha1.AttributeRule{
					AttributeKind: v1alpha1.LabelAttribute, AttributeName: "other", GuardDeletion: true,
				},
			}), want: true,
		},
		"of the operator": {change: func(ns *corev1.Namespace) { ns.Name = v1alpha1.OperatorNamespace }},
		"excluded":        {change: func(ns *corev1.Namespace) { ns.Name = "excluded" }},
		"being deleted":   {change: func(ns *corev1.Namespace) { ns.DeletionTimestamp = new(metav1.Now()) }},
		"that lives on": {
			change: func(ns *corev1.Namespace) {
				ns.Annotations[v1alpha1.ExpiresAnnotation] = time.Now().Add(time.Hour).Format(time.RFC3339)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := expired()
			if test.change != nil {
				test.change(ns)
			}
			api := &oneNamespace{ns: ns}
			r := &Expiry{
				Leader: &leadership.Leader{Client: api, Recorder: events.NewFakeRecorder(1)},
				Exempt: []string{"excluded"},
				Rules: func(context.Context) (*attributes.Rules, error) {
					return attributes.NewRules(test.rules, nil), nil
				},
			}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: ns.Name}})
			require.NoError(t, err)
			if !test.want {
				require.Nil(t, api.deleted)
				return
			}
			require.Equal(t, &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion}, api.deleted)
		})
	}
}

// An end that cannot be carried out is announced all the same, with what keeps the namespace.
func TestExpiredNamespacesThatTheAPIServerDoesNotDelete(t *testing.T) {
	t.Parallel()
	forbidden := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("namespaces"), "sandbox", errors.New(why))
	}
	const refuses = ", and stays because its deletion is denied: "
	for name, test := range map[string]struct {
		refusal   error
		announced string
		err       string
	}{
		"without the right": {
			refusal: forbidden(`User "operator" cannot delete resource "namespaces" in API group "" in the namespace ` +
				`"sandbox"`),
			announced: ", and stays because the operator may not delete namespaces: apply manifests/components/expiry",
		},
		"a webhook that forbids it": {
			refusal:   forbidden("it is kept"),
			announced: refuses + `namespaces \"sandbox\" is forbidden: it is kept`,
		},
		"a webhook that forbids it in other words": {
			refusal:   forbidden("you cannot delete resource x"),
			announced: refuses + `namespaces \"sandbox\" is forbidden: you cannot delete resource x`,
		},
		"an admission policy": {
			refusal: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "sandbox",
				field.ErrorList{field.Forbidden(field.NewPath("metadata"), "a backup is missing")}),
			announced: refuses + `Namespace \"sandbox\" is invalid: metadata: Forbidden: a backup is missing`,
		},
		"a webhook that does not answer": {
			refusal:   apierrors.NewInternalError(errors.New("failed calling webhook")),
			announced: refuses + "Internal error occurred: failed calling webhook",
		},
		"a long message": {
			refusal: apierrors.NewBadRequest(strings.Repeat("m", 2*reporting.MaxMessage)), announced: "m…",
		},
		"another version": {
			refusal: apierrors.NewConflict(corev1.Resource("namespaces"), "sandbox", errors.New("it has changed")),
			err:     "delete namespace sandbox, which changed: ",
		},
		"an API server that asks to wait": {
			refusal: apierrors.NewTooManyRequests("too many requests", 1), err: "too many requests",
		},
		"no answer": {
			refusal: errors.New("connection refused"), err: "delete the expired namespace sandbox: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(1)
			api := &oneNamespace{ns: expired(), refusal: test.refusal}
			r := &Expiry{
				Leader: &leadership.Leader{Client: api, Recorder: recorder},
				Rules:  func(context.Context) (*attributes.Rules, error) { return attributes.NewRules(nil, nil), nil },
			}
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(api.ns)}
			result, err := r.Reconcile(t.Context(), request)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.Empty(t, api.status)
				return
			}
			require.NoError(t, err)
			require.Equal(t, reconcile.Result{RequeueAfter: retryRefused}, result)
			require.Contains(t, api.status, test.announced+`","reason":"Expired","status":"True"`)
			// The API server denies notes of more than 1,024 bytes.
			longest := len("Warning Expired ") + reporting.MaxMessage + len("…")
			require.LessOrEqual(t, len(<-recorder.Events), longest)
		})
	}
}

// A namespace that another client deleted at the same time has no status to announce.
func TestADeletedNamespaceIsNotAnnounced(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"deleted":               nil,
		"deleted by another":    apierrors.NewNotFound(corev1.Resource("namespaces"), "sandbox"),
		"replaced by a new one": apierrors.NewConflict(corev1.Resource("namespaces"), "sandbox", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &oneNamespace{ns: expired(), refusal: refusal}
			r := &Expiry{
				Leader: &leadership.Leader{Client: api},
				Rules:  func(context.Context) (*attributes.Rules, error) { return attributes.NewRules(nil, nil), nil },
			}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(api.ns)})
			require.Equal(t, apierrors.IsConflict(refusal), err != nil)
			require.Empty(t, api.status)
		})
	}
}

// A namespace that leaves its policy space meanwhile gets no end of it.
func TestAnEndIsWrittenWhileTheNamespaceIsInItsPolicySpace(t *testing.T) {
	t.Parallel()
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "sandboxes"}}
	space.Spec.SelfService = &v1alpha1.SelfService{MaxAge: &metav1.Duration{Duration: time.Hour}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "sandbox", UID: "1", Labels: map[string]string{v1alpha1.PolicySpaceLabel: "sandboxes"},
	}}
	written := &oneNamespace{}
	r := &Expiry{Leader: &leadership.Leader{Client: inSpace{
		spaces{byName: map[string]*v1alpha1.PolicySpace{"sandboxes": space}}, written,
	}}}
	_, err := r.begin(t.Context(), ns, time.Now())
	require.NoError(t, err)
	require.Contains(t, written.status,
		`{"op":"test","path":"/metadata/labels/`+strings.ReplaceAll(v1alpha1.PolicySpaceLabel, "/", "~1")+
			`","value":"sandboxes"}`)
}

// inSpace is a client that reads policy spaces, and records what the status of a namespace gets.
type inSpace struct {
	spaces
	written *oneNamespace
}

func (c inSpace) Status() client.SubResourceWriter { return statusOf{namespace: c.written} }

// spaces is a client that reads policy spaces, and three namespaces in them, of which one has an end.
type spaces struct {
	client.Client
	byName map[string]*v1alpha1.PolicySpace
}

func (s spaces) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	space := s.byName[key.Name]
	if space == nil {
		return apierrors.NewNotFound(v1alpha1.PolicySpaces.GroupResource(), key.Name)
	}
	space.DeepCopyInto(into.(*v1alpha1.PolicySpace))
	return nil
}

func (s spaces) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	ends := metav1.ObjectMeta{Name: "c", Annotations: map[string]string{v1alpha1.ExpiresAnnotation: "never"}}
	list.(*corev1.NamespaceList).Items = []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: ends},
	}
	return nil
}

// A namespace that was deleted and created again while the watch was interrupted may have no end yet.
func TestANamespaceOfTheSameNameIsAnother(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "1", Labels: map[string]string{v1alpha1.PolicySpaceLabel: "s"},
	}}
	again := ns.DeepCopy()
	require.Equal(t, inputsOf(ns), inputsOf(again))
	again.UID = "2"
	require.NotEqual(t, inputsOf(ns), inputsOf(again))
}

// A policy space that gives no namespace an end wakes none.
func TestPolicySpacesThatWakeNamespaces(t *testing.T) {
	t.Parallel()
	space := func(name, parent string, maxAge time.Duration) *v1alpha1.PolicySpace {
		space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		space.Spec.Parent = parent
		if maxAge > 0 {
			space.Spec.SelfService = &v1alpha1.SelfService{MaxAge: &metav1.Duration{Duration: maxAge}}
		}
		return space
	}
	cached := map[string]*v1alpha1.PolicySpace{
		"corp": space("corp", "", 0), "teams": space("teams", "corp", 0),
		"sandbox": space("sandbox", "", time.Hour), "below": space("below", "sandbox", 0),
	}
	created := func(s *v1alpha1.PolicySpace) event.CreateEvent { return event.CreateEvent{Object: s} }
	updated := func(before, after *v1alpha1.PolicySpace) event.UpdateEvent {
		return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
	}
	for name, test := range map[string]struct {
		event any
		wakes bool
	}{
		"a new space":                            {created(space("new", "", 0)), false},
		"a new space with maxAge":                {created(space("new", "", time.Hour)), true},
		"a new space below one without maxAge":   {created(space("new", "teams", 0)), false},
		"a new space below one with maxAge":      {created(space("new", "below", 0)), true},
		"a new space below one that comes later": {created(space("new", "later", 0)), false},
		"a space of the start": {
			event.CreateEvent{Object: space("below", "sandbox", 0), IsInInitialList: true}, false,
		},
		"maxAge is added":            {updated(space("corp", "", 0), space("corp", "", time.Hour)), true},
		"maxAge is shorter":          {updated(space("corp", "", 2*time.Hour), space("corp", "", time.Hour)), true},
		"a move below one with":      {updated(space("new", "corp", 0), space("new", "below", 0)), true},
		"a move below one without":   {updated(space("new", "corp", 0), space("new", "teams", 0)), false},
		"nothing of interest":        {updated(space("new", "below", 0), space("new", "below", 0)), false},
		"a deletion limits no lives": {event.DeleteEvent{Object: space("new", "below", time.Hour)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Expiry{Leader: &leadership.Leader{Client: spaces{byName: cached}}}
			woken := 0
			wake := func(object client.Object) { woken += len(r.namespacesInSpaces(t.Context(), object)) }
			switch e := test.event.(type) { // as handler.EnqueueRequestsFromMapFunc does
			case event.CreateEvent:
				if changesLives.Create(e) {
					wake(e.Object)
				}
			case event.UpdateEvent:
				if changesLives.Update(e) {
					wake(e.ObjectOld)
					wake(e.ObjectNew)
				}
			case event.DeleteEvent:
				if changesLives.Delete(e) {
					wake(e.Object)
				}
			}
			require.Equal(t, test.wakes, woken > 0, "%d namespaces", woken)
			require.Zero(t, woken%2, "the namespace with an end is not woken")
		})
	}
}
