package attribute

import (
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// ownPermission returns the permission that the admission policies of nstpl require of users who set one of its labels
// or annotations, or "" if it depends on more than the key. manifests/admission has these policies.
func ownPermission(key string) string {
	if strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) ||
		strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/scc.") {
		return "the verb patch on namespacetemplates"
	}
	return map[string]string{
		v1alpha1.OptOutAnnotation:             "the verb optout on namespacetemplates",
		v1alpha1.CreatorAnnotation:            "the verb set-creator on namespacetemplates",
		v1alpha1.PolicySpaceLabel:             "the verb use on the policy space",
		v1alpha1.ExpiresAnnotation:            "the verb patch on policyspaces",
		v1alpha1.InitializingLabel:            "the verb initialize on the namespace",
		v1alpha1.PendingAnnotation:            "the verb initialize on the namespace",
		v1alpha1.DeletionProtectionAnnotation: "the verb unprotect on the object",
		v1alpha1.DeleteWhenExpiredAnnotation:  "the verb delete on the namespace",
		v1alpha1.AdoptAnnotation:              "the verb delete on roles, rolebindings and resourcequotas in the namespace",
		v1alpha1.TemplateNameLabel:            "the verb patch on the template",
		v1alpha1.TreeLabel:                    "the verb patch on namespacetemplates",
		v1alpha1.InTreeAnnotation:             "the verb patch on namespacetemplates",
		v1alpha1.TreeMetadataAnnotation:       "the verb patch on namespacetemplates",
		v1alpha1.NamespaceMetadataAnnotation:  "the verb patch on namespacetemplates",
		v1alpha1.ExistingAnnotation:           "the verb patch on namespacetemplates",
		v1alpha1.HashAnnotation:               "the verb patch on namespacetemplates",
	}[key]
}

// withOwnGuards returns the answer for a label or an annotation that nstpl itself uses. What rules allow is then not
// known to be allowed.
func (a answer) withOwnGuards(key string) answer {
	if !a.allowed || !render.IsReservedKey(key) {
		return a
	}
	reason := "nstpl uses " + key + " itself, so that other permissions than the roles of rules may decide"
	if permission := ownPermission(key); permission != "" {
		reason += ": users may need " + permission
	}
	return answer{unknown: true, reason: reason}
}
