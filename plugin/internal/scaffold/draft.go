package scaffold

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// draft is what a conversion results in.
type draft struct {
	documents []document
	items     []*item
	// leftOut has what does not belong into a template that was not written.
	leftOut []string
}

// document is an object with comments for its readers.
type document struct {
	object   map[string]any
	comments output.Comments
}

// notes are comments about one thing.
type notes []string

// add adds a comment, and returns it. Nothing is added to nil.
func (n *notes) add(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	if n != nil {
		*n = append(*n, text)
	}
	return text
}

// leftOut begins a note about something that does not belong into a template, so that nothing is lost.
const leftOut = "left out: "

// template is a NamespaceTemplate in the making.
type template struct {
	*item
	name string
	notes
	selector
	objects []declared
	// sources are the objects that the template copies.
	sources []v1alpha1.Source
	// metadata has the labels and annotations of the selected namespaces, by metadataFields.
	metadata map[string]map[string]string
	// report is true for driftPolicy Report, and prune for deletionPolicy Delete.
	report, prune bool
}

// declared is an object of a template with comments, which are by the paths of its fields.
type declared struct {
	object   map[string]any
	comments output.Comments
}

func (o declared) String() string { return nameOf(o.object) }

// nameOf returns the name of an object as kubectl prints it.
func nameOf(object map[string]any) string {
	return render.IDOf(&unstructured.Unstructured{Object: object}).String()
}

// selector is which namespaces a template selects.
type selector struct {
	metav1.LabelSelector
	// incomplete is true if the conditions of the source could not all be converted. The template is disabled then: it
	// must not select more namespaces than the source did.
	incomplete    bool
	selectorNotes notes
}

// undecided adds a condition that could not be converted.
func (t *template) undecided(format string, args ...any) {
	t.incomplete = true
	t.need(&t.selectorNotes, format, args...)
}

// never is a selector that selects nothing: every namespace has this label.
var never = metav1.LabelSelectorRequirement{
	Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist,
}

// addTemplate adds a template. Objects that a template cannot declare are left out.
func (d *draft) addTemplate(ctx context.Context, t template) {
	t.objects = t.valid(ctx)
	t.keepValidMetadata(ctx)
	if t.size() == 0 {
		for _, note := range t.notes {
			if strings.HasPrefix(note, leftOut) {
				d.leftOut = append(d.leftOut, t.from+": "+note)
			}
		}
		t.lose(nil, "namespacetemplate/%s is not written, since it would declare no objects", t.name)
		return
	}
	t.name = d.unused(t.name)
	if _, err := metav1.LabelSelectorAsSelector(&t.LabelSelector); err != nil {
		t.LabelSelector = metav1.LabelSelector{}
		t.undecided("the selector is invalid: %v", err)
	}
	doc := document{comments: output.Comments{}}
	metadata, name := map[string]any{"name": t.name}, "namespacetemplate/"+t.name
	if t.incomplete {
		name += " (disabled)"
		metadata["annotations"] = map[string]any{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
		doc.comments.Add(".metadata.annotations",
			"The template is disabled, so it selects nothing: correct the selector, and remove this annotation.")
		if len(t.MatchLabels)+len(t.MatchExpressions) == 0 {
			t.MatchExpressions = []metav1.LabelSelectorRequirement{never}
		}
	}
	var objects []any
	for i, object := range t.objects {
		for path, lines := range object.comments {
			doc.comments[output.ItemPath(".spec.templates", i)+path] = lines
		}
		objects = append(objects, object.object)
	}
	spec := map[string]any{"namespaces": map[string]any{"labelSelector": fieldsOf(&t.LabelSelector)}}
	if len(objects) > 0 {
		spec["templates"] = objects
	}
	var sources []any
	for i := range t.sources {
		sources = append(sources, fieldsOf(&t.sources[i]))
	}
	if len(sources) > 0 {
		spec["sources"] = sources
		doc.comments[".spec.sources"] = sourceNotes(t.sources)
		t.need(nil, "let the operator read %s: comments have the commands", output.Count(len(sources), "source"))
	}
	if metadata := fieldsOf(namespaceMetadata(t.metadata)); len(metadata) > 0 {
		spec["namespaceMetadata"] = metadata
	}
	if t.report {
		spec["driftPolicy"] = string(v1alpha1.DriftReport)
	}
	if t.prune {
		spec["deletionPolicy"] = string(v1alpha1.DeletionDelete)
	}
	doc.comments[""], doc.comments[".spec.namespaces"] = t.notes, t.selectorNotes
	t.became(name, t.size())
	doc.object = newObject(v1alpha1.GroupVersion.String(), "NamespaceTemplate", metadata, "spec", spec)
	d.documents = append(d.documents, doc)
}

// unused returns a name that no document has, by adding a number.
func (d *draft) unused(name string) string {
	for i := 2; ; i++ {
		isUsed := slices.ContainsFunc(d.documents, func(doc document) bool {
			return doc.object["kind"] == "NamespaceTemplate" && at[string](doc.object, "metadata", "name") == name
		})
		if !isUsed {
			return name
		}
		suffix := fmt.Sprintf("-%d", i)
		name = strings.Trim(name[:min(len(name), maxName-len(suffix))], "-.") + suffix
	}
}

// newObject returns an object with one more field.
func newObject(apiVersion, kind string, metadata map[string]any, field string, value any) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, field: value}
}

// fieldsOf returns a part of a template, by a pointer to it, as a JSON value.
func fieldsOf(of any) map[string]any {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(of) // cannot fail
	return fields
}

// size returns the number of objects, sources, labels and annotations in the template.
func (t *template) size() int {
	return len(t.objects) + len(t.sources) + len(t.metadata["labels"]) + len(t.metadata["annotations"])
}

// maxObjects is the number of objects in a template at most, by its schema.
const maxObjects = 512

// valid returns the objects of a template that "kubectl nstpl vet" accepts, each once.
func (t *template) valid(ctx context.Context) []declared {
	catalog, err := schema.New()
	if err != nil {
		catalog = nil // cannot happen: only custom kinds can be invalid
	}
	var objects []declared
	seen := map[string]bool{}
	for _, object := range t.objects {
		reason := ""
		if len(objects) == maxObjects {
			reason = fmt.Sprintf("a template has at most %d objects", maxObjects)
		} else if seen[object.String()] {
			reason = "is declared twice"
		} else if problems := vetObject(ctx, object.object, catalog); len(problems) > 0 {
			reason = strings.Join(problems, "; ")
		}
		if reason != "" {
			t.lose(&t.notes, "%s: %s", object, reason)
			continue
		}
		seen[object.String()] = true
		objects = append(objects, object)
	}
	return objects
}

// vetObject returns what is wrong with an object of a template.
func vetObject(ctx context.Context, object map[string]any, catalog *schema.Catalog) []string {
	data, err := json.Marshal(object)
	if err != nil {
		return []string{err.Error()}
	}
	single := v1alpha1.NamespaceTemplateSpec{Templates: []runtime.RawExtension{{Raw: data}}}
	var reasons []string
	for _, problem := range vet(ctx, single, catalog) {
		field := strings.TrimPrefix(strings.TrimPrefix(problem.Path, "spec.templates[0]"), ".")
		reasons = append(reasons, strings.TrimPrefix(fmt.Sprintf("%s: %s", field, problem.Message), ": "))
	}
	return reasons
}

// vet returns what is wrong with a template that has only some parts.
func vet(ctx context.Context, spec v1alpha1.NamespaceTemplateSpec, catalog *schema.Catalog) []render.Problem {
	spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	draft := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "draft"}, Spec: spec}
	return render.Vet(ctx, draft, catalog)
}

// print writes the documents to out, and the result to errOut.
func (d *draft) print(out, errOut io.Writer) error {
	for i, doc := range d.documents {
		text, err := output.CommentedYAML(doc.object, doc.comments)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	if err := d.printResult(errOut); err != nil {
		return err
	}
	if len(d.documents) == 0 {
		return errors.New("nothing was written")
	}
	output.Note(errOut, "%s written: read the comments before you apply them", output.Count(len(d.documents), "object"))
	return nil
}

// notInNames are the characters that the name of an object cannot contain.
var notInNames = regexp.MustCompile(`[^-a-z0-9.]+`)

// maxName is the length of the name of a NamespaceTemplate at most, because it is the value of a label.
const maxName = 63

// objectName returns a valid name that consists of parts, such as the names of a policy and of its rule.
func objectName(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	name := notInNames.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-")
	name = strings.Trim(name[:min(len(name), maxName)], "-.")
	return cmp.Or(name, "template")
}
