package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
)

// admissionTemplates is the number of templates that admission evaluates for each new namespace. None of them matches,
// so that only the creation itself is measured. Every other one requires permission.
const admissionTemplates = 100

// admission measures how nstpl slows down the creation of namespaces that no template selects, compared with a bare
// control plane on the same machine at the same time.
func (b *bench) admission(ctx context.Context) (err error) {
	b.printProgress("%d creations without templates and with %d, and as many on a bare control plane", b.sizes.creations,
		admissionTemplates)
	cluster, err := controlplane.Start(ctx, controlplane.Options{Progress: io.Discard})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	bare, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	if err := b.compareCreations(ctx, bare, "without-templates", "nstpl without templates"); err != nil {
		return err
	}
	all, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": unmatched()})
	if err != nil {
		return err
	}
	if _, err := b.cluster.RunKubectl(ctx, string(all), "create", "--filename=-"); err != nil {
		return err
	}
	if _, err := b.cluster.RunKubectl(ctx, "", "wait", "--for=condition=Accepted", "namespacetemplates",
		"--all"); err != nil {
		return err
	}
	what := fmt.Sprintf("%d templates", admissionTemplates)
	if err := b.compareCreations(ctx, bare, "with-templates", what); err != nil {
		return err
	}
	_, err = b.cluster.RunKubectl(ctx, string(all), "delete", "--filename=-")
	return err
}

// compareCreations creates namespaces one by one, in turn on the bare control plane and on the other.
func (b *bench) compareCreations(ctx context.Context, bare kubernetes.Interface, prefix, what string) error {
	const warmUp = 20
	create := func(client kubernetes.Interface) func(int) error {
		return func(index int) error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%05d", prefix, warmUp+index), Labels: map[string]string{"tier": "test", "team": "a"},
			}}
			_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
			return err
		}
	}
	floor, took, err := measure.Alternately(warmUp, b.sizes.creations, create(bare), create(b.client))
	if err != nil {
		return err
	}
	for _, p := range []int{50, 95} {
		b.table.compare(fmt.Sprintf("a namespace's creation, %s: p%d", what, p), "ms",
			measure.Milliseconds(measure.Percentile(floor, p)), measure.Milliseconds(measure.Percentile(took, p)), "")
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
