package policyspace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// parents reads policy spaces by name, and counts the requests. It panics if they are listed.
type parents struct {
	client.Reader
	of   map[string]string
	gets int
}

func (p *parents) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	p.gets++
	parent, ok := p.of[key.Name]
	if !ok {
		return apierrors.NewNotFound(v1alpha1.PolicySpaces.GroupResource(), key.Name)
	}
	space := into.(*v1alpha1.PolicySpace)
	space.Name, space.Spec.Parent = key.Name, parent
	return nil
}

// A request for a policy space reads its ancestors, and no other policy spaces.
func TestLineageOfAPolicySpaceReadsItsAncestorsOnly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		space, parent string
		lineage       []string
		err           string
		gets          int
	}{
		"root":            {"new", "", []string{"new"}, "", 0},
		"below others":    {"new", "b", []string{"new", "b", "a"}, "", 2},
		"missing parent":  {"new", "none", nil, "policyspace new is below policyspace none, which does not exist", 1},
		"missing further": {"new", "orphan", nil, "policyspace new is below policyspace none, which does not exist", 2},
		"own ancestor":    {"a", "b", nil, "policyspace a is its own ancestor", 2},
		"below a cycle":   {"new", "x", nil, "policyspace new is its own ancestor", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &parents{of: map[string]string{"a": "", "b": "a", "c": "", "orphan": "none", "x": "y", "y": "x"}}
			space := &v1alpha1.PolicySpace{}
			space.Name, space.Spec.Parent = test.space, test.parent
			line, err := (&SpaceAdmission{live: live}).lineageOf(t.Context(), space)
			require.Equal(t, test.gets, live.gets)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, space := range line {
				names = append(names, space.Name)
			}
			require.Equal(t, test.lineage, names)
		})
	}
}

// triedQuotas answers the creation of a ResourceQuota with an error.
type triedQuotas struct {
	corev1client.ResourceQuotaInterface
	err error
}

func (q triedQuotas) Create(
	_ context.Context, created *corev1.ResourceQuota, _ metav1.CreateOptions,
) (*corev1.ResourceQuota, error) {
	return created, q.err
}

// Policies and webhooks of others may deny the ResourceQuota by which limits are tried, with any reason. The limits are
// invalid only if the API server finds an error in them.
func TestCheckLimits(t *testing.T) {
	t.Parallel()
	kind, resource := schema.GroupKind{Kind: "ResourceQuota"}, schema.GroupResource{Resource: "resourcequotas"}
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(kind, "trial", field.ErrorList{field.Invalid(path, "podz", "no resource")})
	}
	denied := func(code int32, reason metav1.StatusReason, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "denied", Details: details,
		}}
	}
	for name, test := range map[string]struct {
		answer error
		want   string
	}{
		"valid": {},
		"invalid": {
			invalid(field.NewPath("spec", "hard").Key("podz")),
			`policyspace s has limits that no ResourceQuota can have: ResourceQuota "trial" is invalid: ` +
				`spec.hard[podz]: Invalid value: "podz": no resource`,
		},
		"labels that others have set":   {answer: invalid(field.NewPath("metadata", "labels"))},
		"a quota of others":             {answer: apierrors.NewForbidden(resource, "trial", nil)},
		"a ResourceQuota of that name":  {answer: apierrors.NewAlreadyExists(resource, "trial")},
		"a webhook without a code":      {answer: denied(400, "", nil)},
		"a webhook without any details": {answer: denied(422, metav1.StatusReasonInvalid, nil)},
		"a ValidatingAdmissionPolicy": {answer: denied(422, metav1.StatusReasonInvalid, &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Message: "no quotas here"}},
		})},
		"no answer": {
			apierrors.NewInternalError(context.DeadlineExceeded),
			"validate the limits of policyspace s with a dry run: Internal error occurred: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space := limiting("s", "podz", "1")
			err := (&SpaceAdmission{quotas: triedQuotas{err: test.answer}}).checkLimits(t.Context(), &space)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
