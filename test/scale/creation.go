package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

func (b *bench) measureRequests(ctx context.Context) error {
	return b.compareRequests(ctx, "request", "request that creates a namespace, idle cluster")
}

func (b *bench) measureRequestsWithRules(ctx context.Context) error {
	return b.compareRequests(ctx, "ruled", "the same request with attribute rules and constraints")
}

// compareRequests creates namespaces that no template selects one by one, in turn on a bare control plane and on the
// other.
func (b *bench) compareRequests(ctx context.Context, prefix, what string) error {
	if _, err := measure.Settle(ctx, b.client); err != nil {
		return err
	}
	const warmUp = 5
	b.progress.part("namespaces one by one, in turn on a bare control plane", 2*(warmUp+b.options.creations))
	create := func(client kubernetes.Interface) func(int) error {
		return func(index int) error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("%s-%d-%04d", prefix, b.content, warmUp+index),
				Labels: map[string]string{"tier": "unselected", unselectedLabel: "true", profileLabel: "none"},
			}}
			_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
			b.progress.done.Add(1)
			return err
		}
	}
	floor, took, err := measure.Alternately(warmUp, b.options.creations, create(b.bareClient), create(b.client))
	if err != nil {
		return err
	}
	goals := map[int]*goal{50: ratio(1.3)}
	for _, p := range []int{50, 99} {
		b.compare(measurement{Name: fmt.Sprintf("%s: p%d", what, p), Unit: "ms", Goal: goals[p]},
			measure.Milliseconds(measure.Percentile(took, p)), measure.Milliseconds(measure.Percentile(floor, p)))
	}
	return nil
}

// resources are those of nstpl's kinds.
var resources = map[string]string{
	"NamespaceTemplate": "namespacetemplates", "PolicySpace": "policyspaces",
	"ProtectedAttribute": "protectedattributes", "SecurityContextConstraints": "securitycontextconstraints",
}

func resourceOf(object *unstructured.Unstructured) schema.GroupVersionResource {
	if name, ok := resources[object.GetKind()]; ok {
		return v1alpha1.GroupVersion.WithResource(name)
	}
	return measure.ResourceOf(object)
}

// createAll creates the objects that do not exist yet, in their order: each kind after the one before.
func (b *bench) createAll(ctx context.Context, all []*unstructured.Unstructured) (created int, err error) {
	var missing []*unstructured.Unstructured
	for _, object := range all {
		if !b.created[nameOf(object)] {
			missing = append(missing, object)
		}
	}
	exists := make([]bool, len(missing))
	defer func() {
		for i, object := range missing {
			if exists[i] {
				b.created[nameOf(object)] = true
			}
		}
	}()
	for from := 0; from < len(missing); {
		to := from
		for to < len(missing) && missing[to].GetKind() == missing[from].GetKind() {
			to++
		}
		b.progress.part("creation of "+resourceOf(missing[from]).Resource, to-from)
		if err := b.parallel(ctx, to-from, func(i int) error {
			object := missing[from+i]
			_, err := b.dynamic.Resource(resourceOf(object)).Namespace(object.GetNamespace()).
				Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // the answer to an earlier request was lost
				err = nil
			}
			exists[from+i] = err == nil
			return err
		}); err != nil {
			return 0, err
		}
		from = to
	}
	return len(missing), nil
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// awaitCondition returns when all the given objects of a resource have a condition that is True.
func (b *bench) awaitCondition(
	ctx context.Context, resource, condition string, objects []*unstructured.Unstructured,
) error {
	b.progress.part("condition "+condition+" of "+resource, len(objects))
	wanted := sets.New[string]()
	for _, object := range objects {
		wanted.Insert(nameOf(object))
	}
	for {
		have, start := 0, time.Now()
		err := b.eachObject(ctx, v1alpha1.GroupVersion.WithResource(resource), func(object *unstructured.Unstructured) {
			if wanted.Has(nameOf(object)) && hasCondition(object, condition) {
				have++
			}
		})
		if err != nil {
			return err
		}
		b.progress.done.Store(int64(have))
		if have == len(objects) {
			return nil
		}
		// Lists of thousands of objects must not take the processors from the operator.
		if err := measure.Pause(ctx, max(time.Second, 3*time.Since(start))); err != nil {
			return fmt.Errorf("%d of %d %s have the condition %s: %w", have, len(objects), resource, condition, err)
		}
	}
}

func hasCondition(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		if fields, ok := one.(map[string]any); ok && fields["type"] == condition {
			return fields["status"] == "True"
		}
	}
	return false
}

// eachObject calls do with all objects of a resource, which it reads in chunks.
func (b *bench) eachObject(
	ctx context.Context, resource schema.GroupVersionResource, do func(*unstructured.Unstructured),
) error {
	options := metav1.ListOptions{Limit: 500}
	for {
		list, err := b.dynamic.Resource(resource).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// createPolicies creates the templates and policy spaces of the content, and waits until they are in force.
func (b *bench) createPolicies(ctx context.Context) (err error) {
	b.progress.part("the tree of policies", 0)
	if b.tree, err = b.content.writeTree(b.dir); err != nil {
		return err
	}
	compiled, err := compile(b.tree)
	if err != nil {
		return err
	}
	return b.awaitPolicies(ctx, append(b.content.templates(), compiled...))
}

// awaitPolicies creates the policies that do not exist yet, and returns when all are in force.
func (b *bench) awaitPolicies(ctx context.Context, policies []*unstructured.Unstructured) error {
	start := time.Now()
	created, err := b.createAll(ctx, policies)
	if err != nil {
		return err
	}
	var templates []*unstructured.Unstructured
	for _, object := range policies {
		if object.GetKind() == "NamespaceTemplate" {
			templates = append(templates, object)
		}
	}
	if err := b.awaitCondition(ctx, "namespacetemplates", "Accepted", templates); err != nil {
		return err
	}
	b.add(measurement{Name: "time per template or policy space until it is in force", Unit: "ms"},
		measure.Milliseconds(time.Since(start))/float64(created))
	return nil
}

func (b *bench) createConstraints(ctx context.Context) error {
	all := b.content.securityConstraints(b.secured)
	if len(all) == 0 {
		return nil
	}
	_, err := b.createAll(ctx, all)
	b.secured = b.content.constraints()
	return err
}

// createRules creates the attribute rules of the content, and waits until they are enforced.
func (b *bench) createRules(ctx context.Context) error {
	all := b.content.attributeRules(b.rules)
	start := time.Now()
	if _, err := b.createAll(ctx, all); err != nil {
		return err
	}
	b.rules = b.content.rules()
	if err := b.awaitCondition(ctx, "protectedattributes", v1alpha1.AttributeEnforced, all); err != nil {
		return err
	}
	b.add(measurement{Name: "time per attribute rule until it is enforced", Unit: "ms", Goal: atMost(10)},
		measure.Milliseconds(time.Since(start))/float64(len(all)))
	return nil
}
