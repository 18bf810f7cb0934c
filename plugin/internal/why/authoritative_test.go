package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// A template that only reports undeclared objects of a kind takes precedence over one that deletes them.
func TestTemplatesThatDeleteUndeclaredObjects(t *testing.T) {
	t.Parallel()
	template := func(name, tree string, policy v1alpha1.AuthoritativePolicy) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.TreeLabel: tree},
		}}
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
		template.Spec.AuthoritativePolicy = policy
		return template
	}
	deletes, reports := template("deletes", "", v1alpha1.AuthoritativeDelete),
		template("reports", "", v1alpha1.AuthoritativeReport)
	ofTree := template("of-tree", "corp", v1alpha1.AuthoritativeDelete)
	copies := template("copies", "", v1alpha1.AuthoritativeDelete)
	copies.Spec.Sources = []v1alpha1.Source{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "x"}}
	const because = "configmap/x does not exist: template deletes is authoritative for the kind ConfigMap in the " +
		"namespace, and declares no such object"
	for name, test := range map[string]struct {
		templates []*v1alpha1.NamespaceTemplate
		kind      string
		want      string
	}{
		"one":              {[]*v1alpha1.NamespaceTemplate{deletes}, "ConfigMap", because},
		"of another kind":  {[]*v1alpha1.NamespaceTemplate{deletes}, "Secret", ""},
		"one that reports": {[]*v1alpha1.NamespaceTemplate{deletes, reports}, "ConfigMap", ""},
		"one of a tree that does not manage the namespace": {
			[]*v1alpha1.NamespaceTemplate{deletes, ofTree}, "ConfigMap", "",
		},
		"one, and one that copies the object": {[]*v1alpha1.NamespaceTemplate{deletes, copies}, "ConfigMap", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := answer{Subject: "configmap/x"}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
			a.addDeleting(ns, test.templates, populate.ObjectID{GroupKind: schema.GroupKind{Kind: test.kind}, Name: "x"})
			require.Equal(t, test.want, a.Summary)
		})
	}
}
