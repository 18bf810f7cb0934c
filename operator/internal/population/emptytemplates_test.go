package population

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

func emptyTemplates(n int) []*v1alpha1.NamespaceTemplate {
	var templates []*v1alpha1.NamespaceTemplate
	for i := range n {
		templates = append(templates, &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("empty-%d", i),
		}})
	}
	return templates
}

func TestTemplatesThatDeclareNothingChangeNoReport(t *testing.T) {
	declaring := func(spec v1alpha1.NamespaceTemplateSpec) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: spec}
	}
	tests := map[string]struct {
		others  []*v1alpha1.NamespaceTemplate
		message string
	}{
		"alone": {others: emptyTemplates(1), message: "0 objects of templates that declare nothing"},
		"objects": {
			others: []*v1alpha1.NamespaceTemplate{declaring(v1alpha1.NamespaceTemplateSpec{
				Templates: []runtime.RawExtension{{}},
			})},
			message: "0 objects of t",
		},
		"sources": {
			others: []*v1alpha1.NamespaceTemplate{declaring(v1alpha1.NamespaceTemplateSpec{
				Sources: []v1alpha1.Source{{}},
			})},
			message: "0 objects of t",
		},
		"metadata": {
			others: []*v1alpha1.NamespaceTemplate{declaring(v1alpha1.NamespaceTemplateSpec{
				NamespaceMetadata: &v1alpha1.NamespaceMetadata{},
			})},
			message: "0 objects of t",
		},
		"authoritative": {
			others: []*v1alpha1.NamespaceTemplate{declaring(v1alpha1.NamespaceTemplateSpec{
				Authoritative: []v1alpha1.GroupKind{{}},
			})},
			message: "0 objects of t",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := populate.Plan{}
			plan.Namespace, plan.Templates = &corev1.Namespace{}, test.others
			before := reportOf(plan, populate.Result{}, nil)
			plan.Templates = append(emptyTemplates(800), test.others...)
			after := reportOf(plan, populate.Result{}, nil)
			require.Equal(t, test.message, before.Message)
			require.True(t, before.equal(after))
		})
	}
}
