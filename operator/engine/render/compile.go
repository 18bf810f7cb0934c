package render

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Compile builds a template with the named overlays. The error joins every reason why the template is invalid. Compile
// returns early once the context is done.
func Compile(ctx context.Context, template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	compiled, err := compile(ctx.Err, template, overlays)
	return compiled, withTemplateName(template, err)
}

// canceledFunc returns an error once the caller no longer needs the compilation.
type canceledFunc func() error

// notCanceled is the canceledFunc of a compilation that several callers wait for.
func notCanceled() error { return nil }

func withTemplateName(template *v1alpha1.NamespaceTemplate, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("template %s: %w", template.Name, err)
}

func compile(canceled canceledFunc, template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	objects, err := parseTemplate(template)
	if err != nil {
		return nil, err
	}
	for i, overlay := range template.Spec.Overlays {
		if !slices.Contains(overlays, overlay.Name) {
			continue
		}
		if objects, err = applyOverlay(canceled, Part{Overlays, i}, overlay, objects); err != nil {
			return nil, err
		}
	}
	compiled, err := finish(canceled, template, objects)
	if err != nil {
		return nil, err
	}
	compiled.metadata = metadataOf(template, overlays)
	compiled.usedKeys = compiled.findUsedKeys()
	if err := join(checkUsedKeys(template, compiled.usedKeys)); err != nil {
		return nil, err
	}
	return compiled, nil
}

// parseTemplate returns the objects of a template without overlays.
func parseTemplate(template *v1alpha1.NamespaceTemplate) ([]*unstructured.Unstructured, error) {
	objects, problems := parseObjects(template)
	_, invalid := parseSources(template, objects)
	return objects, join(slices.Concat(checkSelectors(template), checkNamespaceMetadata(template),
		checkReferences(template), problems, invalid))
}

// finish adds the copies of sources, the label and the namespace, which no overlay may change, and returns the compiled
// template. It changes the objects.
func finish(
	canceled canceledFunc, template *v1alpha1.NamespaceTemplate, objects []*unstructured.Unstructured,
) (*Compiled, error) {
	if err := canceled(); err != nil {
		return nil, err
	}
	compiled := &Compiled{Template: template.Name}
	copies, _ := parseSources(template, nil) // parseTemplate has returned the problems
	for _, object := range slices.Concat(objects, copies) {
		setOwn(object, template.Name)
		DeclareDefaults(object)
		object, err := newCompiledObject(object)
		if err != nil {
			return nil, err
		}
		compiled.objects = append(compiled.objects, object)
	}
	return compiled, nil
}

// setOwn sets what no overlay may change: the label with the name of the template, and the namespace. ServiceAccounts
// among a binding's subjects get the namespace if they name none. kustomize does the same, but a build takes some
// milliseconds, and a replica that starts compiles every template.
func setOwn(object *unstructured.Unstructured, template string) {
	metadata, ok := object.Object["metadata"].(map[string]any)
	if !ok {
		return // checkDeclared has refused it
	}
	metadata["namespace"] = NamespaceToken
	labels, ok := metadata["labels"].(map[string]any)
	if !ok {
		labels = map[string]any{}
		metadata["labels"] = labels
	}
	labels[v1alpha1.TemplateNameLabel] = template
	if annotations, _ := metadata["annotations"].(map[string]any); len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if object.GetKind() != "RoleBinding" {
		return
	}
	subjects, _ := object.Object["subjects"].([]any)
	for _, item := range subjects {
		subject, ok := item.(map[string]any)
		if ok && subject["kind"] == "ServiceAccount" && (subject["namespace"] == nil || subject["namespace"] == "") {
			subject["namespace"] = NamespaceToken
		}
	}
}

// DeclareDefaults declares what a role, a binding or a NetworkPolicy has if it leaves fields out: no rules, unless a
// role aggregates them, no subjects, and no ingress and egress but that of the rules. Server-side apply does not change
// a field that is not declared, so an object of another client in its place, or a change by one, would grant or allow
// more.
func DeclareDefaults(object *unstructured.Unstructured) {
	kind := object.GroupVersionKind().GroupKind()
	switch {
	case kind == networkPolicyKind:
		declarePolicy(object)
	case kind.Group != rbacGroup || object.Object["aggregationRule"] != nil:
	case kind.Kind == "Role" || kind.Kind == "ClusterRole":
		declare(object.Object, "rules", []any{})
	default:
		declare(object.Object, "subjects", []any{})
	}
}

var networkPolicyKind = schema.GroupKind{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}

// declarePolicy declares the pods and directions of a NetworkPolicy, as the API server defaults them, and the rules of
// these directions. An invalid policy stays as it is.
func declarePolicy(object *unstructured.Unstructured) {
	declare(object.Object, "spec", map[string]any{})
	spec, isMap := object.Object["spec"].(map[string]any)
	if !isMap {
		return
	}
	declare(spec, "podSelector", map[string]any{})
	if types, isList := spec["policyTypes"].([]any); spec["policyTypes"] == nil || isList && len(types) == 0 {
		spec["policyTypes"] = []any{string(networkingv1.PolicyTypeIngress)}
		if rules, _ := spec["egress"].([]any); len(rules) > 0 {
			spec["policyTypes"] = []any{string(networkingv1.PolicyTypeIngress), string(networkingv1.PolicyTypeEgress)}
		}
	}
	types, _ := spec["policyTypes"].([]any)
	for _, direction := range types {
		switch direction {
		case string(networkingv1.PolicyTypeIngress):
			declare(spec, "ingress", []any{})
		case string(networkingv1.PolicyTypeEgress):
			declare(spec, "egress", []any{})
		}
	}
}

// declare sets a field that is not declared.
func declare(fields map[string]any, field string, value any) {
	if fields[field] == nil {
		fields[field] = value
	}
}
