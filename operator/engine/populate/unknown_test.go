package populate

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// A template that cannot be rendered, or not completely, keeps what it may declare. A grant that it certainly does not
// declare any more ends all the same.
func TestAFailureToRenderKeepsNoRevokedGrant(t *testing.T) {
	byCreator := func(name string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: \"" + name + "\"}, roleRef: " +
			"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}, subjects: [{kind: User, name: $(CREATOR)}]}"
	}
	for name, test := range map[string]struct {
		after []string
		want  Action
	}{
		"no longer declared":                 {nil, Prune},
		"not rendered":                       {[]string{broken}, Prune},
		"not rendered, and declared":         {[]string{bindingTo("x", "c"), broken}, LeaveAlone},
		"not rendered, and perhaps declared": {[]string{byCreator("$(CREATOR)"), broken}, LeaveAlone},
		"not rendered, other names": {
			[]string{byCreator("of-$(CREATOR)"), byCreator("$(CREATOR)-x"), broken}, Prune,
		},
		"the creator is unknown":                   {[]string{byCreator("other")}, Prune},
		"the creator is unknown, same name":        {[]string{byCreator("b")}, LeaveAlone},
		"the creator is unknown, perhaps the name": {[]string{byCreator("$(CREATOR)")}, LeaveAlone},
	} {
		t.Run(name, func(t *testing.T) {
			ns := teamA()
			delete(ns.Annotations, v1alpha1.CreatorAnnotation)
			before := templateOf(t, "t", bindingTo("x", "a"), settings)
			after := templateOf(t, "t", append(test.after, limits)...)
			after.Status.Kinds = []v1alpha1.GroupKind{{Group: bindingKind.Group, Kind: bindingKind.Kind}, {Kind: "ConfigMap"}}
			var existing []*metav1.PartialObjectMetadata
			for _, object := range declare(ns, before).Objects {
				existing = append(existing, applied(t, object))
			}
			plan := NewPlan(declare(ns, after), match.NewIndex(after), Observed{Objects: existing})
			actions := map[string]Action{}
			for _, change := range plan.Changes {
				actions[change.Name] = change.Action
			}
			require.Equal(t, test.want, actions["b"])
			if len(after.Spec.Templates) > 1 && plan.Broken != nil {
				require.Equal(t, LeaveAlone, actions["settings"], "other objects remain")
			}
		})
	}
}
