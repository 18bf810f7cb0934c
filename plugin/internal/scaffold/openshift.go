package scaffold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	openShiftTemplate = schema.GroupKind{Group: "template.openshift.io", Kind: "Template"}
	openShiftProjects = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "projects"}
	projectTemplates  = openShiftTemplate.WithVersion("v1").GroupVersion().WithResource("templates")
)

// readProjectTemplate reads the template that the configuration of the cluster names.
func readProjectTemplate(
	ctx context.Context, r reader, _ []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	const ownDefault = "the cluster uses OpenShift's own project template: print it with " +
		"'oc adm create-bootstrap-project-template -o yaml', and read it with -f"
	if _, err := r.Mapper.RESTMappingWithContext(ctx, openShiftTemplate); meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the cluster has no kind %s: read an exported template with -f", openShiftTemplate)
	}
	config, err := r.Dynamic.Resource(openShiftProjects).Get(ctx, "cluster", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errors.New(ownDefault)
	}
	if err != nil {
		return nil, err
	}
	name := at[string](config.Object, "spec", "projectRequestTemplate", "name")
	if name == "" {
		return nil, errors.New(ownDefault)
	}
	found, err := r.Dynamic.Resource(projectTemplates).Namespace("openshift-config").Get(ctx, name, metav1.GetOptions{})
	return []*unstructured.Unstructured{found}, err
}

// fromProjectTemplate converts Templates of OpenShift to templates with a selector. If it is nil, they are disabled.
func fromProjectTemplate(
	ctx context.Context, objects []*unstructured.Unstructured, selects *metav1.LabelSelector,
) *draft {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if kind := kindOf(object); kind == openShiftTemplate || kind == (schema.GroupKind{Kind: "Template"}) {
			found = append(found, object)
		}
	}
	if len(found) == 0 {
		return nil
	}
	d := &draft{}
	for _, source := range found {
		t := template{item: d.item("template/%s", source.GetName()), name: objectName(source.GetName())}
		t.add("Converted from the OpenShift template %s.", source.GetName())
		t.selectorNotes.add("OpenShift applied its template to new projects only. This template also populates namespaces that " +
			"exist.")
		if selects != nil {
			t.LabelSelector = *selects
		} else {
			t.undecided("choose the namespaces: {} selects every namespace")
		}
		t.nameFields(&t.notes, "", source.Object, nil, "apiVersion", "kind", "labels", "message", "metadata", "objects",
			"parameters")
		known := parametersOf(source)
		for _, object := range each(source.Object, "objects") {
			t.addProjectObject(object, at[map[string]any](source.Object, "labels"), known)
		}
		d.addTemplate(ctx, t)
	}
	return d
}

// addProjectObject adds an object of OpenShift's template to a template.
func (t *template) addProjectObject(object, labels map[string]any, known parameters) {
	name := nameOf(object)
	o := &unstructured.Unstructured{Object: object}
	switch kind := o.GetKind(); {
	case kind == "Project" || kind == "Namespace":
		t.addProjectMetadata(o, known)
		added := map[string]any{"metadata": map[string]any{"labels": labels}} // by the template, also to the project
		t.addProjectMetadata(&unstructured.Unstructured{Object: added}, known)
		return
	case kind == "Secret":
		t.fail(&t.notes, name, errSecret)
		return
	case !slices.Contains([]string{"", "${PROJECT_NAME}"}, o.GetNamespace()):
		t.lose(&t.notes, "%s: it is created in namespace %s, and a template declares objects of the namespace that it "+
			"populates", name, o.GetNamespace())
		return
	}
	cleaned := clean(o)
	if kind := kindOf(o); kind.Kind == "RoleBinding" && kind.Group != rbacv1.GroupName {
		cleaned.object = rbacBinding(cleaned.object)
		cleaned.comments.Add("", "converted from %s", o.GetAPIVersion())
	}
	metadata := at[map[string]any](cleaned.object, "metadata")
	if len(labels) > 0 {
		merged := map[string]any{}
		maps.Copy(merged, at[map[string]any](metadata, "labels"))
		maps.Copy(merged, labels)
		metadata["labels"] = merged
	}
	if err := cleaned.replace(parameterPattern, known.value); err != nil {
		t.fail(&t.notes, name, err)
		return
	}
	t.objects = append(t.objects, cleaned)
}

// addProjectMetadata makes a template set the labels and annotations of the project. Those without a value are left
// out.
func (t *template) addProjectMetadata(project *unstructured.Unstructured, known parameters) {
	for _, field := range metadataFields {
		entries, _, _ := unstructured.NestedStringMap(project.Object, "metadata", field)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			value, err := substitute(entries[key], parameterPattern, known.value)
			switch {
			case err != nil:
				t.fail(&t.notes, key+" of the project", err)
			case value == "" && field == "annotations":
				t.add(leftOut+"%s of the project, which has no value", key)
			default:
				t.addMetadata(field, key, value)
			}
		}
	}
}

// nothing is a pattern that matches no variable.
var nothing = regexp.MustCompile(`[^\s\S]`)

// replace replaces the variables of a tool in all strings of an object, and escapes text that looks like a token.
func (o *declared) replace(pattern *regexp.Regexp, value func(match []string) (part, error)) error {
	mapped, err := mapStrings(o.object, "", func(_, text string) (string, error) {
		return substitute(text, pattern, value)
	})
	if err != nil {
		return err
	}
	o.object, _ = mapped.(map[string]any)
	if o.object["kind"] == "RoleBinding" {
		o.noteSubjects()
	}
	return nil
}

// parameter is a parameter of an OpenShift template.
type parameter struct {
	value    any
	required bool
	generate string
}

// parameters are the parameters of an OpenShift template, by name.
type parameters map[string]parameter

func parametersOf(source *unstructured.Unstructured) parameters {
	all := parameters{}
	for _, fields := range each(source.Object, "parameters") {
		all[at[string](fields, "name")] = parameter{
			fields["value"], at[bool](fields, "required"), at[string](fields, "generate"),
		}
	}
	return all
}

// parameterPattern matches ${NAME}, and ${{NAME}}, which stands for a value that is not a string.
var parameterPattern = regexp.MustCompile(`\$\{(\{?)([A-Za-z0-9_]+)\}\}?`)

// value returns what stands for a match of parameterPattern.
func (p parameters) value(match []string) (part, error) {
	name := match[2]
	known, declared := p[name]
	switch {
	case match[1] != "" || strings.HasSuffix(match[0], "}}"):
		return part{}, fmt.Errorf("the parameter %s stands for a value that is not a string", match[0])
	case name == "PROJECT_NAME":
		return namespaceName, nil
	case name == "PROJECT_ADMIN_USER" || name == "PROJECT_REQUESTING_USER":
		return creatorName, nil
	case known.generate != "":
		return part{}, fmt.Errorf("the parameter %s is generated for each project", name)
	case known.value != nil:
		return part{text: fmt.Sprint(known.value)}, nil
	case name == "PROJECT_DISPLAYNAME" || name == "PROJECT_DESCRIPTION" || declared && !known.required:
		return part{}, nil // OpenShift replaces an optional parameter without a value by nothing
	}
	return part{}, fmt.Errorf("the value of the parameter %s is unknown", name)
}

// rbacBinding returns a RoleBinding of OpenShift's former API group as one of RBAC.
func rbacBinding(object map[string]any) map[string]any {
	kind := "ClusterRole"
	if at[string](object, "roleRef", "namespace") != "" {
		kind = "Role"
	}
	var subjects []any
	for _, subject := range each(object, "subjects") {
		kind := strings.TrimPrefix(at[string](subject, "kind"), "System")
		converted := map[string]any{"kind": kind, "name": at[string](subject, "name")}
		if kind == rbacv1.ServiceAccountKind {
			converted["namespace"] = at[string](subject, "namespace")
		} else {
			converted["apiGroup"] = rbacv1.GroupName
		}
		subjects = append(subjects, converted)
	}
	return map[string]any{
		"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": "RoleBinding", "metadata": object["metadata"],
		"roleRef": map[string]any{
			"apiGroup": rbacv1.GroupName, "kind": kind, "name": at[string](object, "roleRef", "name"),
		},
		"subjects": subjects,
	}
}
