package namespace

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestIsPopulated(t *testing.T) {
	condition := func(name corev1.NamespaceConditionType, status corev1.ConditionStatus) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: name, Status: status}
	}
	tests := map[string]struct {
		conditions []corev1.NamespaceCondition
		want       bool
	}{
		"no conditions": {nil, false},
		"another condition": {[]corev1.NamespaceCondition{condition(corev1.NamespaceContentRemaining,
			corev1.ConditionTrue)}, false},
		"populated": {[]corev1.NamespaceCondition{
			condition(corev1.NamespaceContentRemaining, corev1.ConditionFalse),
			condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue),
		}, true},
		"failed": {[]corev1.NamespaceCondition{condition(v1alpha1.NamespacePopulated, corev1.ConditionFalse)}, false},
		"unknown": {
			[]corev1.NamespaceCondition{condition(v1alpha1.NamespacePopulated, corev1.ConditionUnknown)}, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: test.conditions}}
			require.Equal(t, test.want, isPopulated(ns))
		})
	}
}
