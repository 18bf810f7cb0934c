package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNotesOnDisabledAndPausedTemplates(t *testing.T) {
	t.Parallel()
	template := func(apply string, rollout *v1alpha1.Rollout) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
		template.Spec.Rollout = rollout
		if apply != "" {
			template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: apply}
		}
		return template
	}
	const (
		disabled = "template t is disabled in the cluster; kubectl apply enables it only if kubectl apply disabled it: " +
			"compared as if it were enabled"
		paused = "the rollout of template t is paused in the cluster; kubectl apply resumes it only if the file sets " +
			"spec.rollout.paused to false or kubectl apply paused it: compared as if it were resumed"
		grants = "; a pause does not delay the end of grants that the file removes"
	)
	stored := template(v1alpha1.TemplateApplyDisable, &v1alpha1.Rollout{Paused: true})
	for name, test := range map[string]struct {
		file, stored *v1alpha1.NamespaceTemplate
		want         []string
	}{
		"in the cluster": {template("", nil), stored, []string{disabled, paused + grants}},
		"in both":        {stored, stored, nil},
		"in the file":    {stored, template("", nil), nil},
		"enabled by the file, and grants end with the rollout": {
			template("enable", &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}), stored, []string{paused},
		},
		"grants end with the rollout in the cluster": {
			template("", nil), template("", &v1alpha1.Rollout{Paused: true, Revocation: v1alpha1.RevokeWithRollout}),
			[]string{paused},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, keptNotes(test.file, test.stored))
		})
	}
}
