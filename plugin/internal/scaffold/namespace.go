package scaffold

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// fromNamespace returns a template with the objects of a namespace. If selects is nil, the template selects the
// namespace alone.
func fromNamespace(
	ctx context.Context, ns *corev1.Namespace, objects []*unstructured.Unstructured, name string,
	selects *metav1.LabelSelector,
) *draft {
	d := &draft{}
	t := template{item: d.item("namespace/%s", ns.Name), name: name}
	t.add("A template from the objects of namespace %s. Read each comment before you let it select other namespaces.",
		ns.Name)
	t.add(leftOut + "Secrets, workloads, Services and all other kinds that were not named on the command line")
	t.selectNamespaces(ns, selects)
	if reason := survey.UnpopulatedReason(ns); reason != "" {
		t.add("Namespace %s itself is not populated: %s.", ns.Name, reason)
	}
	_, project := ns.Annotations["openshift.io/sa.scc.mcs"]
	tokens := tokenizer{namespace: ns.Name, creator: ns.Annotations[v1alpha1.CreatorAnnotation]}
	if tokens.creator == "" {
		t.add("The creator of %s is not recorded, so no name became %s.", ns.Name, render.CreatorToken)
	}
	for _, object := range objects {
		if reason := omission(object, project); reason != "" {
			t.add(leftOut+"%s: %s", nameOf(object.Object), reason)
			continue
		}
		cleaned := clean(object)
		if err := tokens.apply(&cleaned); err != nil {
			t.fail(&t.notes, cleaned.String(), err)
			continue
		}
		t.objects = append(t.objects, cleaned)
	}
	d.addTemplate(ctx, t)
	return d
}

func (t *template) selectNamespaces(ns *corev1.Namespace, selects *metav1.LabelSelector) {
	if selects != nil {
		t.LabelSelector = *selects
		return
	}
	t.MatchLabels = map[string]string{corev1.LabelMetadataName: ns.Name}
	t.selectorNotes.add("This selects namespace %s alone. Select others by a label that you give them.", ns.Name)
}

// tokenizer replaces what belongs to one namespace by tokens.
type tokenizer struct{ namespace, creator string }

// apply replaces the name of the namespace and of its creator in an object by tokens, with a comment for each. It
// escapes all text that looks like a token.
func (x tokenizer) apply(o *declared) error {
	object := o.object
	kind, apiVersion := object["kind"], object["apiVersion"]
	mapped, err := mapStrings(object, "", func(path, text string) (string, error) {
		if path == "" {
			return joinParts(part{text: text})
		}
		return x.convert(o, path, text)
	})
	if fields, ok := mapped.(map[string]any); ok {
		o.object = fields
		o.object["kind"], o.object["apiVersion"] = kind, apiVersion
	}
	if kind == "RoleBinding" {
		o.noteSubjects()
	}
	return err
}

// convert returns the string of the template for the string of a field, and adds a comment about the decision.
func (x tokenizer) convert(o *declared, path, text string) (string, error) {
	parts, isClear := x.references(path, text)
	converted, err := joinParts(parts...)
	switch {
	case err != nil:
		return "", err
	case isClear && slices.Contains(parts, creatorName):
		o.comments.Add(path, "%s replaces %s, the creator of the namespace.", render.CreatorToken, text)
	case isClear:
		o.comments.Add(path, "%s replaces %s.", render.NamespaceToken, x.namespace)
	case x.mentions(text):
		o.comments.Add(path, "Kept: write %s instead of %s if it stands for the namespace.", render.NamespaceToken, x.namespace)
	}
	return converted, nil
}

// literalFields match the paths of fields in which the name of the namespace may as well be that of something else,
// such as a role or an application.
var literalFields = regexp.MustCompile(`^\.kind$|^\.apiVersion$|\.name$|\.(kind|apiGroup|resourceNames|apiGroups|resources|` +
	`verbs)(\[\d+\])?$|[pP]odSelector|^\.spec\.(selector|hard|limits)|^\.binaryData`)

// references returns the parts of a string, and whether one of them is a token, because the text clearly refers to the
// namespace or its creator.
func (x tokenizer) references(path, text string) (parts []part, isClear bool) {
	isName := strings.HasSuffix(path, "."+corev1.LabelMetadataName)
	switch {
	case strings.HasPrefix(path, ".subjects[") && strings.HasSuffix(path, ".name") && x.creator != "" && text == x.creator:
		return []part{creatorName}, true
	case text == x.namespace && (isName || !literalFields.MatchString(path)):
		return []part{namespaceName}, true
	}
	for _, reference := range []struct{ before, after string }{
		{"system:serviceaccount:", ":"}, {"system:serviceaccounts:", ""}, {".", ".svc"},
	} {
		if before, after, found := cutReference(text, reference.before+x.namespace, reference.after); found {
			return []part{{text: before + reference.before}, namespaceName, {text: after}}, true
		}
	}
	return []part{{text: text}}, false
}

// cutReference cuts a text around the name in a reference such as system:serviceaccount:NAME:. Begin ends with the
// name. The text may contain the reference once.
func cutReference(text, begin, end string) (before, after string, found bool) {
	before, after, found = strings.Cut(text, begin)
	isWhole := strings.HasPrefix(after, end) && (end != "" || after == "")
	return before, after, found && isWhole && (before == "" || end == ".svc") && !strings.Contains(after, begin)
}

// mentions reports whether a text contains the name of the namespace as a word.
func (x tokenizer) mentions(text string) bool {
	isPartOfName := func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }
	return slices.Contains(strings.FieldsFunc(text, isPartOfName), x.namespace)
}

// noteSubjects adds a comment if a RoleBinding gives the same subjects access to every namespace.
func (o *declared) noteSubjects() {
	seen := map[string]bool{}
	for _, subject := range each(o.object, "subjects") {
		name, in := at[string](subject, "name"), at[string](subject, "namespace")
		isOwn := in == render.NamespaceToken || name == render.CreatorToken ||
			strings.Contains(name, render.NamespaceToken)
		if kind := at[string](subject, "kind"); !isOwn && kind != "" {
			seen[kind+" "+strings.TrimPrefix(in+"/"+name, "/")] = true
		}
	}
	if len(seen) > 0 {
		o.comments.Add(".subjects", "In every namespace that the template selects, this gives access to: %s",
			strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
	}
}
