package match

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// A rollout from the revision t-1 to t-2 begins, and has not reached the namespace unless the namespace is younger.
func TestTemplatesOfANamespaceThatARolloutHasNotReached(t *testing.T) {
	t.Parallel()
	const selects, selectsOthers = "{matchLabels: {tier: test}}", "{matchLabels: {tier: dev}}"
	start := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	guarded := func(t *v1alpha1.NamespaceTemplate) {
		t.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
	}
	all := []string{"t"}
	for name, test := range map[string]struct {
		before, after string
		template      func(*v1alpha1.NamespaceTemplate)
		ns            func(*corev1.Namespace)
		// has and comes are the templates that select the namespace with the revision that it has, and with the next.
		has, comes, newest, keeping []string
		isBehind                    bool
	}{
		"both select it": {before: selects, after: selects, has: all, comes: all, newest: all, isBehind: true},
		"by other labels": {
			before: selects, after: "{matchLabels: {team: a}}", has: all, comes: all, newest: all, isBehind: true,
		},
		"it is younger": {
			before: selects, after: selects, has: all, newest: all,
			ns: func(ns *corev1.Namespace) { ns.CreationTimestamp = metav1.NewTime(start.Add(time.Minute)) },
		},
		"grants are kept": {
			before: selects, after: selects, has: all, comes: all, newest: all, isBehind: true, keeping: all,
			template: func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Rollout = &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}
			},
		},
		"only the earlier one selects it": {
			before: selects, after: selectsOthers, has: all, isBehind: true, keeping: all,
		},
		"only the earlier one selects it, and its objects are deleted": {
			before: selects, after: selectsOthers, has: all, isBehind: true,
			template: func(t *v1alpha1.NamespaceTemplate) { t.Spec.DeletionPolicy = v1alpha1.DeletionDelete },
		},
		"only the newest one selects it": {before: selectsOthers, after: selects, comes: all, newest: all},
		"it is opted out": {
			before: selects, after: selects, isBehind: true,
			ns: func(ns *corev1.Namespace) { ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "t"} },
		},
		"a guarded template": {
			before: selects, after: selects, has: all, comes: all, newest: all, isBehind: true, template: guarded,
		},
		"a guarded template whose stored spec selects others": {
			before: selects, after: selectsOthers, template: guarded,
		},
		"a guarded template whose stored selector is missing": {before: selects, after: "null", template: guarded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := templateOf(t, "t", test.after)
			template.Generation, template.CreationTimestamp = 2, metav1.NewTime(start.Add(-time.Hour))
			if test.template != nil {
				test.template(template)
			}
			ns := namespaceOf("team-a", map[string]string{"tier": "test", "team": "a"})
			ns.CreationTimestamp = metav1.NewTime(start.Add(-time.Minute))
			if test.ns != nil {
				test.ns(ns)
			}
			index := NewIndex()
			index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{
				{Name: "t-2", Revision: 2, Generation: 2, State: v1alpha1.RolloutProgressing, StartTime: start},
				{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
			}, map[string]*v1alpha1.NamespaceTemplateSpec{
				"t-2": &template.Spec, "t-1": &templateOf(t, "t", test.before).Spec,
			}))
			require.ElementsMatch(t, test.has, namesOf(index.Match(ns)))
			require.ElementsMatch(t, test.comes, namesOf(index.Ahead(ns)))
			newest := index.Newest(ns)
			require.ElementsMatch(t, test.newest, namesOf(newest.Templates))
			require.Equal(t, test.isBehind, newest.IsBehind)
			require.Equal(t, test.keeping, newest.Keeping)
		})
	}
}
