package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/measure"
)

const (
	failing = "failing"
	// failingObjects is the number of objects that fail in each namespace of a division.
	failingObjects = 20
	statusLimit    = 32 // KiB
	pollInterval   = 500 * time.Millisecond
)

// failingTemplate returns a template for the first division, whose objects failingPolicy denies.
func failingTemplate() *unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for i := range failingObjects {
		object := object("v1", "ConfigMap",
			fmt.Sprintf("%s-%02d-%s", failing, i, strings.Repeat("long-name-", 15)+"end"), nil)
		object.SetLabels(map[string]string{failing: "true"})
		objects = append(objects, object)
	}
	made := newTemplate(failing, nil, selector(hierarchy.DepthLabel(divisionName(0)), "Exists"), objects...)
	spec := made.Object["spec"].(map[string]any)
	spec["rollout"] = map[string]any{"maxFailures": "100%"}
	spec["deletionPolicy"] = string(v1alpha1.DeletionDelete)
	return made
}

// failingPolicy returns an admission policy that denies the objects in all namespaces but the one for trials.
func failingPolicy() []*unstructured.Unstructured {
	const version = "admissionregistration.k8s.io/v1"
	return []*unstructured.Unstructured{
		object(version, "ValidatingAdmissionPolicy", failing, map[string]any{"spec": map[string]any{
			"matchConstraints": map[string]any{
				"namespaceSelector": selector("tier", "In", "tenant"),
				"objectSelector":    map[string]any{"matchLabels": map[string]any{failing: "true"}},
				"resourceRules": []any{map[string]any{
					"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"},
					"operations": []any{"CREATE"},
				}},
			},
			"validations": []any{map[string]any{"expression": "false", "message": strings.Repeat("not here, ", 20)}},
		}}),
		object(version, "ValidatingAdmissionPolicyBinding", failing, map[string]any{"spec": map[string]any{
			"policyName": failing, "validationActions": []any{"Deny"},
		}}),
	}
}

// measureFailures lets all objects of a template fail in the namespaces of a division, measures statuses, and undoes
// it.
func (b *bench) measureFailures(ctx context.Context) error {
	b.progress.part("a policy that denies objects", 0)
	for _, object := range failingPolicy() {
		if err := b.apply(ctx, object); err != nil {
			return err
		}
	}
	failed := b.fail(ctx)
	b.progress.part("the failures end", 0)
	for _, object := range append(failingPolicy(), failingTemplate()) {
		err := b.dynamic.Resource(resourceOf(object)).Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return failed
	}
	if err := b.awaitFailing(ctx, 0); err != nil {
		return err
	}
	for { // the template is deleted after its objects
		_, err := b.dynamic.Resource(resourceOf(failingTemplate())).Get(ctx, failing, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err := errors.Join(err, measure.Pause(ctx, pollInterval)); err != nil {
			return fmt.Errorf("the template that fails is not deleted: %w", err)
		}
	}
}

// fail applies the template after the policy is in force, and measures the statuses when all namespaces have failed.
func (b *bench) fail(ctx context.Context) error {
	denied := object("v1", "ConfigMap", failing, nil)
	denied.SetLabels(map[string]string{failing: "true"})
	for {
		_, err := b.dynamic.Resource(resourceOf(denied)).Namespace(namespaceName(0)).
			Create(ctx, denied, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			break
		}
		if err := measure.Pause(ctx, pollInterval); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	if err := b.apply(ctx, failingTemplate()); err != nil {
		return err
	}
	if err := b.awaitFailing(ctx, min(int(b.content), namespacesPerTeam*teamsPerDivision)); err != nil {
		return err
	}
	for _, resource := range []schema.GroupVersionResource{
		v1alpha1.GroupVersion.WithResource("namespacetemplates"), measure.Namespaces,
	} {
		if err := b.addLargestStatus(ctx, resource, " with failures"); err != nil {
			return err
		}
	}
	return nil
}

// awaitFailing returns when a number of namespaces of the first division fail: all of them, or none.
func (b *bench) awaitFailing(ctx context.Context, want int) error {
	b.progress.part("failing namespaces", want)
	for {
		list, err := b.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
			LabelSelector: hierarchy.DepthLabel(divisionName(0)),
		})
		if err != nil {
			return err
		}
		have := 0
		for _, ns := range list.Items {
			for _, condition := range ns.Status.Conditions {
				if condition.Type == v1alpha1.NamespacePopulated && condition.Status != "True" {
					have++
				}
			}
		}
		b.progress.done.Store(int64(have))
		if want > 0 && have >= min(want, len(list.Items)) || want == have {
			return nil
		}
		if err := measure.Pause(ctx, pollInterval); err != nil {
			return fmt.Errorf("%d namespaces fail: %w", have, err)
		}
	}
}

// measureStatuses measures the largest status of each kind.
func (b *bench) measureStatuses(ctx context.Context) error {
	if err := b.addLargestStatus(ctx, measure.Namespaces, ""); err != nil {
		return err
	}
	for _, name := range []string{
		"namespacetemplates", "policyspaces", "protectedattributes", "securitycontextconstraints", "policyrepositories",
	} {
		if err := b.addLargestStatus(ctx, v1alpha1.GroupVersion.WithResource(name), ""); err != nil {
			return err
		}
	}
	return nil
}

// addLargestStatus adds the size of the largest status of a resource. It adds nothing if there are no objects.
func (b *bench) addLargestStatus(ctx context.Context, resource schema.GroupVersionResource, when string) error {
	b.progress.part("statuses of "+resource.Resource, 0)
	largest := -1
	var failed error
	err := b.eachObject(ctx, resource, func(object *unstructured.Unstructured) {
		text, err := json.Marshal(object.Object["status"])
		largest, failed = max(largest, len(text)), errors.Join(failed, err)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if largest >= 0 {
		b.add(measurement{
			Name: "largest status of " + resource.Resource + when, Unit: "KiB", Goal: atMost(statusLimit),
		}, float64(largest)/1024)
	}
	return nil
}
