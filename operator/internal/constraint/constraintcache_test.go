package constraint

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// listed is a reader of constraints.
type listed struct {
	client.Reader
	constraints []*v1alpha1.SecurityContextConstraints
}

func (l *listed) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*v1alpha1.SecurityContextConstraintsList)
	for _, constraint := range l.constraints {
		list.Items = append(list.Items, *constraint)
	}
	return nil
}

func generation(
	constraint *v1alpha1.SecurityContextConstraints, number int64,
) *v1alpha1.SecurityContextConstraints {
	changed := constraint.DeepCopy()
	changed.UID, changed.Generation = types.UID(constraint.Name), number
	return changed
}

// Constraints that change all the time keep no other one from being in force.
func TestAConstraintWaitsForItsOwnWebhooksOnly(t *testing.T) {
	t.Parallel()
	quiet, changing := generation(named("quiet", nil), 1), generation(named("changing", nil), 1)
	cached := &listed{constraints: []*v1alpha1.SecurityContextConstraints{quiet, changing}}
	c := &constraintCache{webhook.NewRevisionCache(cached, nil, readConstraints)}
	write := func() admissionregistrationv1.WebhookClientConfig {
		needed, err := (&Admission{constraints: c}).webhooks(nil)(t.Context())
		require.NoError(t, err)
		return admissionregistrationv1.WebhookClientConfig{
			URL: new("https://localhost/validate/" + pluginName + "/" + needed[0].Revision),
		}
	}
	written := write()
	changed := generation(changing, 2)
	cached.constraints[1] = changed
	c.Replace(changing, changed)
	require.True(t, c.isWrittenFor(written, quiet))
	require.False(t, c.isWrittenFor(written, changed))
	require.False(t, c.isWrittenFor(written, generation(quiet, 2)))
	written = write()
	require.True(t, c.isWrittenFor(written, quiet))
	require.True(t, c.isWrittenFor(written, changed))
	require.False(t, c.isWrittenFor(admissionregistrationv1.WebhookClientConfig{}, quiet))
}

// Constraints that a late cache lacks may allow what those in the cache do not, and set other fields.
func TestMutateDecidesByTheRevisionOfItsWebhook(t *testing.T) {
	t.Parallel()
	runningAs := func(number, uid int64) *v1alpha1.SecurityContextConstraints {
		return generation(named("fixed", func(c *v1alpha1.SecurityContextConstraints) {
			c.RunAsUser = v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.MustRunAs, UID: &uid}
			c.Users = []string{"jane"}
		}), number)
	}
	before, now := runningAs(1, 1000), runningAs(2, 2000)
	cached, live := &listed{}, &listed{constraints: []*v1alpha1.SecurityContextConstraints{now}}
	cached.constraints = []*v1alpha1.SecurityContextConstraints{before}
	c := &constraintCache{webhook.NewRevisionCache(cached, live, readConstraints)}
	c.Replace(nil, before)
	current, err := readConstraints(t.Context(), live)
	require.NoError(t, err)
	admission := &Admission{
		constraints: c, namespaces: &recreated{created: namespace("team-a", 1, nil)}, grants: NewGrants(nil, nil),
	}
	request := requestFor(admissionv1.Create, "", nil, parse(t, `{spec: {containers: [{name: a, image: a}]}}`))
	request.Revision = current.Revision()
	require.NoError(t, admission.Mutate(t.Context(), request))
	pod, err := podOf(request.Object)
	require.NoError(t, err)
	require.EqualValues(t, 2000, *pod.Spec.Containers[0].SecurityContext.RunAsUser)
}
