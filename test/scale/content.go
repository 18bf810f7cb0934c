package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// Labels of namespaces that select them in templates.
const (
	profileLabel = "scale.nstpl.dev/profile"
	classLabel   = "scale.nstpl.dev/class"
	// unselectedLabel keeps a namespace out of the template that selects all others.
	unselectedLabel = "scale.nstpl.dev/unselected"
	// stageLabel is on the object that a rollout changes.
	stageLabel = "scale.nstpl.dev/stage"
)

// The policy spaces above the divisions. The space moved moves from north to south; its name has no number, so that it
// differs from those of divisions and teams.
const (
	root, north, south, moved = "corp", "north", "south", "company"
)

// baseline is the template that selects all namespaces.
const baseline = "baseline"

// objectsPerNamespace is the number of objects that templates declare for each namespace: one of each of the five
// policy spaces above it, four of the baseline, and one of its own.
const objectsPerNamespace = 10

const (
	namespacesPerTeam = 5
	teamsPerDivision  = 50
)

// content is what a cluster of a size contains. Its size is the number of namespaces. A smaller content is a part of
// every larger one, so that a cluster grows from one to the next.
//
// In it are as many templates as namespaces: 90 % are compiled from a tree of policies, 9 % are hand-written, and 1 %
// require permission. The numbers of policy spaces and of attribute rules are 20 % of it, and the number of constraints
// is 1 %.
type content int

func (c content) teams() int       { return divideUp(int(c), namespacesPerTeam) }
func (c content) divisions() int   { return divideUp(c.teams(), teamsPerDivision) }
func (c content) profiles() int    { return divideUp(int(c)*9, 100) }
func (c content) classes() int     { return divideUp(int(c), 100) }
func (c content) rules() int       { return int(c) / 5 }
func (c content) constraints() int { return divideUp(int(c), 100) }

func divideUp(a, b int) int { return (a + b - 1) / b }

// origin is the source of the object of a namespace that the others of its team do not have.
type origin int

const (
	ownDirectory origin = iota // a Role in the namespace's directory of the tree
	handWritten                // a template that selects the namespace by its profile
	guarded                    // a template that requires permission
)

func originOf(number int) origin {
	switch {
	case number%100 == 99:
		return guarded
	case number%10 >= 7:
		return handWritten
	default:
		return ownDirectory
	}
}

func namespaceName(number int) string { return fmt.Sprintf("ns-%05d", number) }
func teamName(number int) string      { return fmt.Sprintf("team-%04d", number) }
func divisionName(number int) string  { return fmt.Sprintf("division-%03d", number) }

// labelsOf returns the labels of a namespace that a user would write.
func labelsOf(number int) map[string]string {
	labels := map[string]string{"tier": "tenant"}
	switch originOf(number) {
	case handWritten:
		labels[profileLabel] = fmt.Sprintf("profile-%04d", number*9/100)
	case guarded:
		labels[classLabel] = fmt.Sprintf("class-%03d", number/100)
	case ownDirectory:
	}
	return labels
}

// writeTree writes the tree of policies of the content as files below dir, and returns the folder of its root.
func (c content) writeTree(dir string) (string, error) {
	w := &treeWriter{root: filepath.Join(dir, root)}
	w.space("", root, "")
	w.space(north, north, "")
	w.space(south, south, "")
	top := filepath.Join(north, moved)
	w.space(top, moved, "")
	for i := range c.divisions() {
		w.space(filepath.Join(top, divisionName(i)), divisionName(i), "")
	}
	teamFolder := func(team int) string {
		return filepath.Join(top, divisionName(team/teamsPerDivision), teamName(team))
	}
	for i := range c.teams() {
		quota := ""
		if i%10 == 0 {
			quota = "1000"
		}
		w.space(teamFolder(i), teamName(i), quota)
	}
	for i := range int(c) {
		w.namespace(filepath.Join(teamFolder(i/namespacesPerTeam), namespaceName(i)), i)
	}
	return w.root, w.err
}

// treeWriter writes directories of a tree until one cannot be written.
type treeWriter struct {
	root string
	err  error
}

func (w *treeWriter) write(folder, file string, object *unstructured.Unstructured) {
	if w.err != nil {
		return
	}
	text, err := yaml.Marshal(object.Object)
	folder = filepath.Join(w.root, folder)
	if w.err = errors.Join(err, os.MkdirAll(folder, 0o755)); w.err == nil {
		w.err = os.WriteFile(filepath.Join(folder, file), text, 0o644)
	}
}

// space writes a policy space. The group of north and south is the same, so that its members keep their access when a
// space moves between them.
func (w *treeWriter) space(folder, name, pods string) {
	group := name + "-viewers"
	if name == north || name == south {
		group = "regional-viewers"
	}
	w.write(folder, "viewers.yaml", viewers("viewers", group))
	if pods != "" {
		w.write(folder, "quota.yaml", object("v1", "ResourceQuota", "quota",
			map[string]any{"spec": map[string]any{"hard": map[string]any{"pods": pods}}}))
	}
}

func (w *treeWriter) namespace(folder string, number int) {
	ns := object("v1", "Namespace", namespaceName(number), nil)
	ns.SetLabels(labelsOf(number))
	w.write(folder, "namespace.yaml", ns)
	if originOf(number) == ownDirectory {
		w.write(folder, "role.yaml", object(rbacVersion, "Role", "job-creator", map[string]any{"rules": []any{
			map[string]any{"apiGroups": []any{"batch"}, "resources": []any{"jobs"}, "verbs": []any{"create"}},
		}}))
	}
}

// compile returns the objects of a tree of policies: all but Namespaces.
func compile(folder string) ([]*unstructured.Unstructured, error) {
	loaded, err := hierarchy.Load(os.DirFS(folder), filepath.Base(folder))
	if err != nil {
		return nil, err
	}
	if len(loaded.Violations) > 0 {
		return nil, fmt.Errorf("the tree has %d violations; the first: %v", len(loaded.Violations),
			loaded.Violations[0])
	}
	all, err := loaded.Tree.Compile(v1alpha1.AuthoritativeDelete)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, object := range all {
		if object.GetKind() != "Namespace" {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// templates returns the templates that are not compiled from the tree.
func (c content) templates() []*unstructured.Unstructured {
	all := []*unstructured.Unstructured{baselineTemplate("a")}
	for i := range c.profiles() {
		name := fmt.Sprintf("profile-%04d", i)
		all = append(all, newTemplate(name, nil, selector(profileLabel, "In", name, name+"-canary"), profileObject()))
	}
	for i := range c.classes() {
		name := fmt.Sprintf("class-%03d", i)
		all = append(all, newTemplate(name, map[string]any{v1alpha1.RequirePermissionAnnotation: "true"},
			map[string]any{"matchLabels": map[string]any{classLabel: name}}, profileObject()))
	}
	return all
}

// baselineTemplate returns the template that selects all namespaces. A rollout changes the stage.
func baselineTemplate(stage string) *unstructured.Unstructured {
	objects := baselineObjects()
	objects[0].SetLabels(map[string]string{stageLabel: stage})
	return newTemplate(baseline, nil, selector(unselectedLabel, "DoesNotExist"), objects...)
}

func newTemplate(
	name string, annotations, selector map[string]any, objects ...*unstructured.Unstructured,
) *unstructured.Unstructured {
	declared := make([]any, 0, len(objects))
	for _, object := range objects {
		declared = append(declared, object.Object)
	}
	made := object(v1alpha1.GroupVersion.String(), "NamespaceTemplate", name, map[string]any{"spec": map[string]any{
		"namespaces": map[string]any{"labelSelector": selector}, "templates": declared,
	}})
	if annotations != nil {
		made.Object["metadata"].(map[string]any)["annotations"] = annotations
	}
	return made
}

// selector returns a label selector with one expression.
func selector(key string, operator metav1.LabelSelectorOperator, values ...any) map[string]any {
	expression := map[string]any{"key": key, "operator": string(operator)}
	if len(values) > 0 {
		expression["values"] = values
	}
	return map[string]any{"matchExpressions": []any{expression}}
}

func object(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	all := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	maps.Copy(all, fields)
	return &unstructured.Unstructured{Object: all}
}
