package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// admissionTemplates is the number of templates that admission evaluates for each new namespace. None of them matches,
// so that only the creation itself is measured. Every other one requires permission.
const admissionTemplates = 100

// creations creates namespaces that no template matches, one by one, and returns the durations of the requests.
func (b *bench) creations(ctx context.Context, what string) ([]time.Duration, error) {
	const warmUp = 20
	var took []time.Duration
	for i := range warmUp + b.sizes.Creations {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%05d", what, i), Labels: map[string]string{"tier": "test", "team": "a"},
		}}
		start := time.Now()
		if _, err := b.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}

// admission measures how templates slow down the creation of namespaces, compared with the cluster before the
// installation.
func (b *bench) admission(ctx context.Context) error {
	b.printProgress("%d creations with %d templates", b.sizes.Creations, admissionTemplates)
	if err := b.compareCreations(ctx, "without-templates", "nstpl without templates"); err != nil {
		return err
	}
	all, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": unmatched()})
	if err != nil {
		return err
	}
	if err := b.kubectl(ctx, all, "create", "--filename=-"); err != nil {
		return err
	}
	if err := b.kubectl(ctx, nil, "wait", "--for=condition=Accepted", "namespacetemplates", "--all"); err != nil {
		return err
	}
	what := fmt.Sprintf("%d templates", admissionTemplates)
	if err := b.compareCreations(ctx, "with-templates", what); err != nil {
		return err
	}
	return b.kubectl(ctx, all, "delete", "--filename=-")
}

func (b *bench) compareCreations(ctx context.Context, name, what string) error {
	took, err := b.creations(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range []int{50, 95} {
		b.table.compare(fmt.Sprintf("a namespace's creation, %s: p%d", what, p), "ms",
			milliseconds(percentile(b.bare, p)), milliseconds(percentile(took, p)), "")
	}
	return nil
}

func unmatched() []*v1alpha1.NamespaceTemplate {
	var all []*v1alpha1.NamespaceTemplate
	for i := range admissionTemplates {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("unmatched-%03d", i)}}
		template.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
		if i%2 == 1 {
			template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
		}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{
			MatchLabels: map[string]string{"tier": "test"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "team", Operator: metav1.LabelSelectorOpIn,
				Values: []string{fmt.Sprintf("b-%d", i), fmt.Sprintf("c-%d", i)},
			}},
		}
		template.Spec.Templates = []runtime.RawExtension{{
			Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unmatched"}}`),
		}}
		all = append(all, template)
	}
	return all
}
