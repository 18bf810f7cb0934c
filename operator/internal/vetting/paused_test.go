package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestEditsOfPausedTemplatesWarnAboutGrants(t *testing.T) {
	template := func(rollout *v1alpha1.Rollout, bindings ...string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{}
		template.Name, template.Spec.Rollout = "t", rollout
		for _, name := range bindings {
			template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: []byte(
				`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "` + name + `"}}`)})
		}
		return template
	}
	const notYet = "the rollout is paused, so existing namespaces do not get this change " +
		"until you run \"kubectl nstpl rollout resume t\""
	paused := &v1alpha1.Rollout{Paused: true}
	keeps := &v1alpha1.Rollout{Paused: true, Revocation: v1alpha1.RevokeWithRollout}
	keepsUnpaused := &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}
	restoring := template(paused, "a")
	restoring.Status.Revisions = []v1alpha1.TemplateRevision{
		{State: v1alpha1.RolloutPaused}, {State: v1alpha1.RolloutComplete},
	}
	complete := template(paused, "a")
	complete.Status.Revisions = []v1alpha1.TemplateRevision{{State: v1alpha1.RolloutComplete}}
	disabled := template(nil)
	disabled.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	guarded := func(stage string, policy v1alpha1.DeletionPolicy) *v1alpha1.NamespaceTemplate {
		template := template(paused, "a")
		template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
		template.Spec.DeletionPolicy = policy
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": stage}}
		return template
	}
	for name, c := range map[string]struct {
		edit edit
		want []string
	}{
		"not paused": {edit{template(nil, "a"), template(nil)}, nil},
		"pause only": {edit{template(nil, "a"), template(paused, "a")}, nil},
		"created":    {edit{nil, template(paused, "a")}, nil},
		"deleted":    {edit{template(paused, "a"), nil}, nil},
		"added and removed": {edit{template(paused, "a"), template(paused, "b")}, []string{
			notYet + "; they do not get what it adds to the grants of rolebinding/b; " +
				"what it removes from the grants of rolebinding/a is taken away at once"}},
		"added during a rollout": {edit{restoring, template(paused, "a", "b")}, []string{
			notYet + ", unless it restores the revision that is rolled out completely; " +
				"they do not get what it adds to the grants of rolebinding/b"}},
		"added after a rollout": {edit{complete, template(paused, "a", "b")}, []string{
			notYet + "; they do not get what it adds to the grants of rolebinding/b"}},
		"kept": {edit{template(keeps, "a"), template(keeps)}, []string{
			notYet + "; they keep what it removes from the grants of rolebinding/a, " +
				"because spec.rollout.revocation is WithRollout"}},
		"kept without a pause": {edit{template(keepsUnpaused, "a"), template(keepsUnpaused)}, []string{
			"until the rollout reaches them, namespaces keep what this change removes from the grants of rolebinding/a, " +
				"because spec.rollout.revocation is WithRollout"}},
		"disabled": {edit{template(nil, "a"), disabled}, []string{
			"namespaces keep what this change removes from the grants of rolebinding/a, because the template is disabled " +
				"(annotation policy/namespace-template-apply: disable)"}},
		"selector of a template that requires permission": {
			edit{guarded("a", v1alpha1.DeletionDelete), guarded("b", v1alpha1.DeletionDelete)}, []string{
				notYet + "; namespaces that it no longer selects lose all objects of the template at once, " +
					"because the template requires permission"}},
		"selector of one that keeps its objects": {
			edit{guarded("a", v1alpha1.DeletionOrphan), guarded("b", v1alpha1.DeletionOrphan)}, []string{notYet}},
		"added without a pause": {edit{template(keepsUnpaused), template(keepsUnpaused, "a")}, nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.edit.pauseWarnings()) })
	}
}
