package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// withBindings returns a template that declares RoleBindings.
func withBindings(rollout *v1alpha1.Rollout, bindings ...string) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{}
	template.Name, template.Spec.Rollout = "t", rollout
	for _, name := range bindings {
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: []byte(
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", ` +
				`"metadata": {"name": "` + name + `"}}`)})
	}
	return template
}

func TestEditsOfPausedTemplatesWarnAboutGrants(t *testing.T) {
	template := withBindings
	const notYet = "the rollout is paused, so existing namespaces do not get the newest revision " +
		"until you run \"kubectl nstpl rollout resume t\""
	paused := &v1alpha1.Rollout{Paused: true}
	keeps := &v1alpha1.Rollout{Paused: true, Revocation: v1alpha1.RevokeWithRollout}
	keepsUnpaused := &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}
	// complete returns a template that is rolled out completely, unless it has a newer generation.
	complete := func(template *v1alpha1.NamespaceTemplate) *v1alpha1.NamespaceTemplate {
		template.Status.Revisions = []v1alpha1.TemplateRevision{{State: v1alpha1.RolloutComplete}}
		return template
	}
	newer := func(template *v1alpha1.NamespaceTemplate) *v1alpha1.NamespaceTemplate {
		template.Generation++
		return complete(template)
	}
	selecting := func(rollout *v1alpha1.Rollout, stage string) *v1alpha1.NamespaceTemplate {
		template := complete(template(rollout, "a"))
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": stage}}
		return template
	}
	withPolicy := func(stage string, policy v1alpha1.DeletionPolicy) *v1alpha1.NamespaceTemplate {
		template := selecting(paused, stage)
		template.Spec.DeletionPolicy = policy
		return template
	}
	guarded := func(stage string, policy v1alpha1.DeletionPolicy) *v1alpha1.NamespaceTemplate {
		template := withPolicy(stage, policy)
		template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
		return template
	}
	patched := func(template *v1alpha1.NamespaceTemplate, kind string) *v1alpha1.NamespaceTemplate {
		template.Spec.Overlays = []v1alpha1.Overlay{{Name: "o", Patches: []v1alpha1.Patch{{
			Patch: `[{"op": "remove", "path": "/subjects/0"}]`, Target: &v1alpha1.PatchTarget{Kind: kind},
		}}}}
		return template
	}
	const (
		removesA = "; what it removes from the grants of rolebinding/a is taken away at once"
		keepsA   = "until the rollout reaches them, namespaces keep what the newest revision removes from the grants of " +
			"rolebinding/a, because spec.rollout.revocation is WithRollout"
	)
	const losesAll = "; namespaces that it no longer selects lose all objects of the template at once, " +
		"because the template requires permission"
	type templates = []*v1alpha1.NamespaceTemplate
	for name, c := range map[string]struct {
		edit edit
		// earlier are the revisions in force besides the stored template.
		earlier templates
		want    []string
	}{
		"added and removed": {edit{complete(template(paused, "a")), template(paused, "b")}, nil, []string{
			notYet + "; they do not get what it adds to the grants of rolebinding/b; " +
				"what it removes from the grants of rolebinding/a is taken away at once"}},
		"added before": {edit{newer(template(paused, "a", "b")), template(paused, "a", "b", "c")},
			templates{template(nil, "a")}, []string{
				notYet + "; they do not get what it adds to the grants of rolebinding/c, rolebinding/b"}},
		"removed before": {edit{newer(template(keeps)), template(keeps, "b")},
			templates{template(keeps, "a")}, []string{
				notYet + "; they do not get what it adds to the grants of rolebinding/b; they keep what it removes " +
					"from the grants of rolebinding/a, because spec.rollout.revocation is WithRollout"}},
		"restored": {edit{newer(template(paused, "a", "b")), template(paused, "a")},
			templates{template(nil, "a")}, nil},
		"a first rollout": {edit{template(paused, "a"), template(paused, "a", "b")}, nil, []string{
			notYet + "; they do not get what it adds to the grants of rolebinding/b, rolebinding/a"}},
		"kept": {edit{complete(template(keeps, "a")), template(keeps)}, nil, []string{
			notYet + "; they keep what it removes from the grants of rolebinding/a, " +
				"because spec.rollout.revocation is WithRollout"}},
		"kept without a pause": {edit{complete(template(keepsUnpaused, "a")), template(keepsUnpaused)}, nil, []string{
			"until the rollout reaches them, namespaces keep what the newest revision removes from the grants of " +
				"rolebinding/a, because spec.rollout.revocation is WithRollout"}},
		"removed by an overlay": {
			edit{complete(template(paused, "a")), patched(template(paused, "a"), "RoleBinding")}, nil,
			[]string{notYet + "; they do not get what it adds to the grants of rolebinding/a" + removesA}},
		"kept although an overlay is gone": {
			edit{complete(patched(template(keepsUnpaused, "a"), "")), template(keepsUnpaused, "a")}, nil, []string{keepsA}},
		"an overlay of other kinds": {
			edit{complete(template(keepsUnpaused, "a")), patched(template(keepsUnpaused, "a"), "LimitRange")}, nil, nil},
		"kept where it is no longer selected": {
			edit{selecting(keepsUnpaused, "a"), selecting(keepsUnpaused, "b")}, nil, []string{keepsA}},
		"selector of a template that requires permission": {
			edit{guarded("a", v1alpha1.DeletionDelete), guarded("b", v1alpha1.DeletionDelete)}, nil,
			[]string{notYet + losesAll}},
		"selector of one that keeps its objects": {
			edit{guarded("a", v1alpha1.DeletionOrphan), guarded("b", v1alpha1.DeletionOrphan)}, nil, []string{notYet}},
		"first the selector, and then the policy": {
			edit{newer(guarded("b", v1alpha1.DeletionOrphan)), guarded("b", v1alpha1.DeletionDelete)},
			templates{guarded("a", v1alpha1.DeletionOrphan)}, []string{notYet + losesAll}},
		"first the selector, and then the permission": {
			edit{newer(withPolicy("b", v1alpha1.DeletionDelete)), guarded("b", v1alpha1.DeletionDelete)},
			templates{withPolicy("a", v1alpha1.DeletionDelete)}, []string{notYet + losesAll}},
		"a selector without permission": {
			edit{withPolicy("a", v1alpha1.DeletionDelete), withPolicy("b", v1alpha1.DeletionDelete)}, nil,
			[]string{notYet + removesA}},
		"the policy alone": {
			edit{withPolicy("a", v1alpha1.DeletionOrphan), withPolicy("a", v1alpha1.DeletionDelete)}, nil, nil},
		"added without a pause": {edit{complete(template(keepsUnpaused)), template(keepsUnpaused, "a")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.edit.pauseWarnings(append(templates{c.edit.old}, c.earlier...)))
		})
	}
}

// Edits that change neither what is populated nor the permission wait for no rollout. No revision is read for them, nor
// for those that do not wait because the template is neither paused nor keeps grants.
func TestEditsThatReadNoRevision(t *testing.T) {
	unpaused, paused := withBindings(nil, "a"), withBindings(&v1alpha1.Rollout{Paused: true}, "a")
	disabled := withBindings(nil)
	disabled.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	for name, c := range map[string]struct {
		edit edit
		want []string
	}{
		"paused":     {edit{unpaused, paused}, nil},
		"created":    {edit{nil, paused}, nil},
		"deleted":    {edit{paused, nil}, nil},
		"not paused": {edit{unpaused, withBindings(nil)}, nil},
		"resumed":    {edit{paused, withBindings(&v1alpha1.Rollout{}, "b")}, nil},
		"disabled": {edit{unpaused, disabled}, []string{
			"namespaces keep what the newest revision removes from the grants of rolebinding/a, because the template " +
				"is disabled (annotation policy/namespace-template-apply: disable)"}},
	} {
		warnings, err := (&Admission{}).pauseWarnings(t.Context(), c.edit)
		require.NoError(t, err, name)
		require.Equal(t, c.want, warnings, name)
	}
}

// A stored revision has no nulls, which mean the same as missing fields.
func TestAGrantWithANullIsTheSame(t *testing.T) {
	withSubjects := func(subjects string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{}
		template.Spec.Templates = []runtime.RawExtension{{Raw: []byte(
			`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", ` + subjects +
				`"metadata": {"name": "a"}}`,
		)}}
		return template
	}
	added, removed := edit{updated: withSubjects(`"subjects": null, `)}.changedGrants(withSubjects(""))
	require.Empty(t, added)
	require.Empty(t, removed)
}
