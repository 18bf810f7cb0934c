package match

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestInvalidAnnotations(t *testing.T) {
	t.Parallel()
	for value, requires := range map[string]bool{"true": true, "false": false, "True": true, "yes": true, "": true} {
		template := templateOf(t, "a", "{}")
		template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: value}
		require.Equal(t, requires, RequiresPermission(template), value)
		require.Equal(t, value != "true" && value != "false", len(InvalidAnnotations(template)) == 1, value)
	}
	require.False(t, RequiresPermission(templateOf(t, "a", "{}")))
	for value, isValid := range map[string]bool{"disable": true, "enable": true, "disabled": false, "": false} {
		template := templateOf(t, "a", "{}")
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: value}
		require.Equal(t, value == "disable", DisabledReason(template) != "", value)
		require.Equal(t, isValid, len(InvalidAnnotations(template)) == 0, value)
	}
	template := templateOf(t, "a", "{}")
	template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "True", "other": "True"}
	require.Equal(t, `the value "True" of the annotation policy/namespace-template-require-permission is invalid: `+
		`write "true" or "false"`, InvalidAnnotations(template)[0].String())
}
