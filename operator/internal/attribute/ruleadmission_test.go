package attribute

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// storedRules lists rules of namespaces.
type storedRules struct {
	client.Reader
	items []v1alpha1.ProtectedAttribute
}

func (s storedRules) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.ProtectedAttributeList).Items = s.items
	return nil
}

// withoutRights answers that users have no right.
type withoutRights struct {
	kubernetes.Interface
	authorizationclient.AuthorizationV1Interface
	authorizationclient.SubjectAccessReviewInterface
}

func (r withoutRights) AuthorizationV1() authorizationclient.AuthorizationV1Interface { return r }

func (r withoutRights) SubjectAccessReviews() authorizationclient.SubjectAccessReviewInterface {
	return r
}

func (r withoutRights) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	return review, nil
}

// Many namespaces, each with as many names as it may have, cannot fill the configuration of the webhooks.
func TestNamesOfAllNamespacesAreLimited(t *testing.T) {
	t.Parallel()
	for namespaces, want := range map[int]string{
		31: "",
		32: "the names that ProtectedAttributes of all namespaces protect have more than 256 KiB",
	} {
		var stored storedRules
		for i := range namespaces {
			long := rule("deployer", false)
			long.AttributeName = fmt.Sprintf("%0*d", maxNamesOfNamespace, i)
			stored.items = append(stored.items, namespaceRule(fmt.Sprint("team-", i), "long", long))
		}
		admission := &RuleAdmission{clients: withoutRights{}, rules: &RuleCache{cached: stored}}
		added := attributes.Rule{Namespace: "team-x", Object: "mine", AttributeRule: rule("deployer", false)}
		err := admission.checkSize(t.Context(), write("ProtectedAttribute", "protectedattributes", nil, env("")), added)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// Bindings count while the role that they name does not exist.
func TestTheAuthorOfARuleIsWarnedOfAMissingRole(t *testing.T) {
	t.Parallel()
	admission := &RuleAdmission{clients: fake.NewClientset()}
	mine := attributes.Rule{Object: "mine", AttributeRule: rule("deployer", false)}
	require.Equal(t, []string{
		"ClusterRole deployer does not exist. The subjects of bindings to this name may set label env all the same: create " +
			"the role, and delete bindings that should not count",
	}, admission.roleWarnings(t.Context(), mine))
}
