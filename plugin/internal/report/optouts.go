package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// optOut returns the opt-out of a namespace, or nil if it has none.
func optOut(ns *corev1.Namespace) *OptOut {
	templates := match.OptedOutTemplates(ns)
	if !match.OptedOut(ns) && len(templates) == 0 {
		return nil
	}
	found := &OptOut{Namespace: ns.Name, Templates: templates, Creator: ns.Annotations[v1alpha1.CreatorAnnotation]}
	// The field manager that set the annotation to its value owns it. It may have written other fields later, so the
	// time is the latest at which it can have set the annotation.
	field := fmt.Sprintf("%q:", "f:"+v1alpha1.OptOutAnnotation)
	for _, entry := range ns.ManagedFields {
		if entry.FieldsV1 == nil || entry.Time == nil || !strings.Contains(entry.FieldsV1.GetRawString(), field) {
			continue
		}
		if found.Since == nil || entry.Time.After(*found.Since) {
			found.Since, found.By = output.UTC(*entry.Time), entry.Manager
		}
	}
	return found
}
