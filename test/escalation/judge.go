package escalation

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// History has all writes and their writers.
type History struct {
	Records []Record
	Authors map[string]Author
	// ClusterRoles has the rules of ClusterRoles by name. They do not change during a history.
	ClusterRoles map[string][]rbacv1.PolicyRule
	// Settled are revisions at which the operator had nothing left to do.
	Settled []uint64
}

// Violation is a write of the operator that no author of the responsible template could have made.
type Violation struct {
	Record
	// Template is the responsible NamespaceTemplate, and Authors are the users who may have caused the write through
	// it.
	Template string
	Authors  []string
	Reason   string
}

func (v Violation) String() string {
	return fmt.Sprintf("revision %d: %s %s/%s of template %s by %s: %s", v.Revision, v.Object.GetKind(),
		v.Object.GetNamespace(),
		v.Object.GetName(), v.Template, strings.Join(v.Authors, " or "), v.Reason)
}

// Judge returns the violations in a history.
func Judge(history History) []Violation {
	j := &judge{
		History: history, now: state{map[key]Record{}, history.ClusterRoles},
		templates: map[string][]version{}, disturbed: map[string]uint64{}, operators: map[key]bool{},
	}
	for _, record := range sorted(history.Records) {
		j.next(record)
	}
	return j.violations
}

type judge struct {
	History
	now       state
	templates map[string][]version
	// disturbed is the revision at which users last wrote a namespace or an object in it.
	disturbed map[string]uint64
	// operators are the objects that the operator created.
	operators  map[key]bool
	violations []Violation
}

func (j *judge) next(record Record) {
	id := record.key()
	old, existed := j.now.objects[id]
	switch {
	case id.kind == "NamespaceTemplate":
		if record.Writer != "" {
			j.versionWritten(id.name, newVersion(record))
		}
	case record.Writer != "":
		j.disturbed[namespaceOf(id)] = record.Revision
		if !existed {
			delete(j.operators, id)
		}
	case id.kind == "Namespace":
	case record.Deleted:
		j.deleted(record)
	default:
		j.written(record, old, existed)
	}
	j.now.set(record)
	if record.Deleted {
		delete(j.operators, id)
	}
}

// versionWritten adds a version of a template. A version with the same content as the previous one has no new
// responsible author.
func (j *judge) versionWritten(template string, v version) {
	versions := j.templates[template]
	if len(versions) > 0 {
		last := versions[len(versions)-1]
		if last.off() == v.off() && equality.Semantic.DeepEqual(last.template.Spec, v.template.Spec) {
			return
		}
	}
	j.templates[template] = append(versions, v)
}

func namespaceOf(id key) string {
	if id.kind == "Namespace" {
		return id.name
	}
	return id.namespace
}

// written judges an object that the operator created or changed.
func (j *judge) written(record, old Record, existed bool) {
	id := record.key()
	if existed && sameContent(old.Object, record.Object) {
		return // the operator wrote its own annotations, or Kubernetes the status
	}
	template := record.Object.GetLabels()[v1alpha1.TemplateNameLabel]
	authors := j.responsible(template, id.namespace, record.Revision, false)
	verb := "patch"
	if !existed {
		verb = "create"
		j.operators[id] = true
	}
	j.require(record, template, authors, fmt.Sprintf("could not %s it", verb), func(a Author) bool {
		return a.may(verb, id.group, resourceOf(id.kind), id.name)
	})
	if existed {
		j.overridden(record, old, template, authors)
	}
	switch id.kind {
	case "Role":
		j.roleWritten(record, old, template, authors)
	case "RoleBinding":
		j.bindingWritten(record, old, template, authors)
	}
}

// overridden judges an object that one template takes over from another that still declares it.
func (j *judge) overridden(record, old Record, template string, authors []Author) {
	id, before := record.key(), old.Object.GetLabels()[v1alpha1.TemplateNameLabel]
	if before == "" || before == template {
		return
	}
	namespace := j.now.objects[key{"", "Namespace", "", id.namespace}].Object
	earlier, later := j.current(before), j.current(template)
	if earlier == nil || later == nil || earlier.Revision > later.Revision || !earlier.declares(id, namespace) {
		return
	}
	j.require(record, template, authors, "could not change template "+before+", which declares it",
		func(a Author) bool {
			return a.mayPatchTemplate(before)
		})
}

func (j *judge) roleWritten(record, old Record, template string, authors []Author) {
	id, rules := record.key(), rulesOf(record.Object)
	gained := beyond(rulesOf(old.Object), rules)
	if len(gained) == 0 {
		return
	}
	j.require(record, template, authors, fmt.Sprintf("could not declare a Role with %v", gained), func(a Author) bool {
		return a.mayDeclare(id.name, gained)
	})
	for _, binding := range j.now.bindings(id.namespace) {
		bound := key{rbacv1.GroupName, "RoleBinding", id.namespace, binding.Name}
		if binding.RoleRef.Kind != "Role" || binding.RoleRef.Name != id.name || len(binding.Subjects) == 0 ||
			!j.operators[bound] {
			continue
		}
		stored := j.now.objects[bound]
		owner := stored.Object.GetLabels()[v1alpha1.TemplateNameLabel]
		binders := j.responsible(owner, id.namespace, stored.Revision, false)
		reason := fmt.Sprintf("could not bind Role %s once the operator has added %v to it for template %s", id.name,
			gained, template)
		j.require(stored, owner, binders, reason, func(a Author) bool {
			return a.mayBind(binding.RoleRef, gained, true)
		})
	}
}

func (j *judge) bindingWritten(record, old Record, template string, authors []Author) {
	binding, before := bindingOf(record.Object), bindingOf(old.Object)
	namespace := binding.Namespace
	rules, exists := j.now.rules(namespace, binding.RoleRef)
	for _, subject := range binding.Subjects {
		if before.RoleRef == binding.RoleRef && slices.Contains(before.Subjects, subject) {
			continue
		}
		gained := beyond(j.now.granted(namespace, subject), rules)
		if exists && len(gained) == 0 {
			continue
		}
		reason := fmt.Sprintf("could not grant %s %s the rules %v of %s %s", subject.Kind, subject.Name, gained,
			binding.RoleRef.Kind, binding.RoleRef.Name)
		if !exists {
			reason = fmt.Sprintf("could not bind %s %s, which does not exist, to %s %s", binding.RoleRef.Kind,
				binding.RoleRef.Name, subject.Kind, subject.Name)
		}
		j.require(record, template, authors, reason, func(a Author) bool {
			return a.mayBind(binding.RoleRef, gained, exists)
		})
	}
}

// deleted judges an object that the operator deleted.
func (j *judge) deleted(record Record) {
	id := record.key()
	template := record.Object.GetLabels()[v1alpha1.TemplateNameLabel]
	if j.replaced(record) {
		return // the object that is created in its place is judged
	}
	authors := j.responsible(template, id.namespace, record.Revision, true)
	if j.operators[id] && j.disturbed[id.namespace] > j.settledBefore(record.Revision) {
		return // a user relabeled the namespace, and the deletionPolicy deletes objects that the template had created
	}
	j.require(record, template, authors, "could not delete it", func(a Author) bool {
		return a.may("delete", id.group, resourceOf(id.kind), id.name)
	})
}

// replaced reports whether the operator deleted an object to create it again.
func (j *judge) replaced(deletion Record) bool {
	settled := j.settledBefore(deletion.Revision)
	return slices.ContainsFunc(j.Records, func(later Record) bool {
		return later.Revision > deletion.Revision && j.settledBefore(later.Revision) == settled &&
			later.key() == deletion.key() && later.Writer == "" && !later.Deleted
	})
}

// require adds a violation if none of the authors has a permission.
func (j *judge) require(record Record, template string, authors []Author, reason string, has func(Author) bool) {
	if slices.ContainsFunc(authors, has) {
		return
	}
	names := make([]string, 0, len(authors))
	for _, author := range authors {
		names = append(names, author.Name)
	}
	j.violations = append(j.violations,
		Violation{Record: record, Template: template, Authors: names, Reason: "the author " + reason})
}

// settledBefore returns the last settled revision before another.
func (j *judge) settledBefore(revision uint64) uint64 {
	var last uint64
	for _, settled := range j.Settled {
		if settled < revision {
			last = max(last, settled)
		}
	}
	return last
}

// responsible returns the authors of a template who may have caused a write in a namespace. A version from before the
// last settled revision caused it only if users have changed the namespace since then, or if the template has no later
// version. A deletion is always caused by a change.
func (j *judge) responsible(template, namespace string, revision uint64, deletion bool) []Author {
	settled := j.settledBefore(revision)
	var before, since []version
	for _, v := range j.templates[template] {
		switch {
		case v.Revision <= settled:
			before = []version{v}
		case v.Revision < revision:
			since = append(since, v)
		}
	}
	if len(since) == 0 || !deletion && j.disturbed[namespace] > settled {
		since = append(before, since...)
	}
	var authors []Author
	for _, v := range since {
		author := j.Authors[v.Writer]
		if !slices.ContainsFunc(authors, func(a Author) bool { return a.Name == author.Name }) {
			authors = append(authors, author)
		}
	}
	return authors
}

// current returns the last version of a template, or nil if it is deleted, disabled or was never written.
func (j *judge) current(template string) *version {
	versions := j.templates[template]
	if len(versions) == 0 || versions[len(versions)-1].off() {
		return nil
	}
	return &versions[len(versions)-1]
}

// resourceOf returns the resource of a kind. None of the kinds that are recorded has an irregular plural.
func resourceOf(kind string) string {
	if kind == "NetworkPolicy" {
		return "networkpolicies"
	}
	return strings.ToLower(kind) + "s"
}

// version is a NamespaceTemplate as a user wrote it.
type version struct {
	Record
	template *v1alpha1.NamespaceTemplate
}

func newVersion(record Record) version {
	v := version{record, &v1alpha1.NamespaceTemplate{}}
	into(record.Object, v.template)
	return v
}

func (v version) off() bool {
	return v.Deleted || v.template.DeletionTimestamp != nil ||
		v.template.Annotations[v1alpha1.TemplateApplyAnnotation] == v1alpha1.TemplateApplyDisable
}

// declares reports whether the template selects a namespace and declares an object there. It ignores overlays.
func (v version) declares(id key, namespace *unstructured.Unstructured) bool {
	if namespace == nil || !selects(v.template, namespace.GetLabels()) {
		return false
	}
	tokens := strings.NewReplacer("$(NAMESPACE)", id.namespace, "$(CREATOR)",
		namespace.GetAnnotations()[v1alpha1.CreatorAnnotation])
	for _, raw := range v.template.Spec.Templates {
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON(raw.Raw) != nil {
			continue
		}
		declared := keyOf(object)
		declared.namespace, declared.name = id.namespace, tokens.Replace(declared.name)
		if declared == id {
			return true
		}
	}
	return false
}

func selects(template *v1alpha1.NamespaceTemplate, namespaceLabels map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(template.Spec.Namespaces.LabelSelector)
	return err == nil && selector.Matches(labels.Set(namespaceLabels))
}
