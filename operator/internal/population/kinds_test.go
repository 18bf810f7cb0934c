package population

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/objects"
)

// noKinds is a mapper of an API server that serves no kinds. It counts the requests.
type noKinds struct {
	meta.RESTMapper
	requests int
}

func (m *noKinds) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	m.requests++
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// An event of a CustomResourceDefinition has the templates of its group ask for their kinds, which they otherwise do
// not within some seconds.
func TestADefinitionHasTheTemplatesOfItsGroupAskForTheirKinds(t *testing.T) {
	t.Parallel()
	template := func(name, group string) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1alpha1.NamespaceTemplateStatus{
				Kinds: []v1alpha1.GroupKind{{Group: group, Kind: "Wheel"}, {Group: group, Kind: "Cog"}},
			},
		}
	}
	mapper := &noKinds{}
	r := &Templates{
		Acceptance: &Acceptance{Index: match.NewIndex(template("a", "example.org"), template("b", "another.org"))},
		Objects:    objects.New(t.Context(), objects.Options{Mapper: mapper}),
	}
	watch := func() int {
		require.True(t, meta.IsNoMatchError(r.Objects.Watch(t.Context(),
			schema.GroupKind{Group: "example.org", Kind: "Wheel"})))
		return mapper.requests
	}
	require.Equal(t, 1, watch())
	require.Equal(t, 1, watch())
	require.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "b"}}},
		r.withKindsOf(t.Context(), definitionOf("wheels.another.org")))
	require.Equal(t, 1, watch())
	require.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "a"}}},
		r.withKindsOf(t.Context(), definitionOf("wheels.example.org")))
	require.Equal(t, 2, watch())
}

// forbidden is an API server that allows nothing.
type forbidden struct {
	noKinds
	authorizationclient.SelfSubjectAccessReviewInterface
}

func (*forbidden) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: "wheels"},
		GroupVersionKind: kind.WithVersion("v1"), Scope: meta.RESTScopeNamespace,
	}, nil
}

func (*forbidden) Create(
	_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	return review, nil
}

// A namespace whose undeclared objects cannot be listed is not reported as one that has none.
func TestUndeclaredObjectsOfAKindThatCannotBeListedAreUnknown(t *testing.T) {
	t.Parallel()
	api := &forbidden{}
	r := &Namespaces{Objects: objects.New(t.Context(), objects.Options{Mapper: api, Reviews: api})}
	ignoring := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "ignoring"}}
	ignoring.Spec.Authoritative = []v1alpha1.GroupKind{
		{Group: "example.org", Kind: "Wheel"}, {Group: "example.org", Kind: "Cog"},
	}
	failing := ignoring.DeepCopy()
	failing.Name, failing.Spec.FailurePolicy = "failing", v1alpha1.FailureFail
	ignoring.Spec.FailurePolicy = v1alpha1.FailureIgnore
	reporting := failing.DeepCopy()
	reporting.Name, reporting.Spec.AuthoritativePolicy = "reporting", v1alpha1.AuthoritativeReport
	plan := populate.Plan{Declared: populate.Declared{
		Namespace: &corev1.Namespace{}, Templates: []*v1alpha1.NamespaceTemplate{ignoring, failing, reporting},
	}}
	require.Empty(t, r.unknownUndeclared(plan))
	require.Error(t, r.Objects.WatchOthers(t.Context(), schema.GroupKind{Group: "example.org", Kind: "Wheel"}))
	findings := r.unknownUndeclared(plan)
	require.Len(t, findings, 3)
	require.Equal(t, populate.Warning, findings[0].Severity)
	require.Equal(t, populate.Error, findings[1].Severity)
	require.Equal(t, populate.Warning, findings[2].Severity)
	require.False(t, findings[1].MayPass)

	report := reportOf(plan, populate.Result{}, findings)
	require.Equal(t, corev1.ConditionFalse, report.Status)
	reported := populate.ReportedFindings(&corev1.NamespaceCondition{
		Status: report.Status, Reason: report.Reason, Message: report.Message,
	})
	require.Len(t, reported, 3)
	for i, name := range []string{"ignoring", "failing", "reporting"} {
		require.Contains(t, reported[i].Message, "template "+name+
			": the undeclared objects of kind Wheel.example.org are unknown: the operator may not list")
		require.Equal(t, Failed, templateResults(plan, findings, nil, nil)[name].State)
	}
}
