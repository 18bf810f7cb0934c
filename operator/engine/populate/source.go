package populate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Reasons of failures because of a source that cannot be copied.
const (
	ReasonSourceNotFound   metav1.StatusReason = "SourceNotFound"
	ReasonSourceDelayed    metav1.StatusReason = "SourceDelayed"
	ReasonSourceForbidden  metav1.StatusReason = "SourceForbidden"
	ReasonSourceUnsuitable metav1.StatusReason = "SourceUnsuitable"
	ReasonSourceTooLarge   metav1.StatusReason = "SourceTooLarge"
	// ReasonSourceProtected is the reason for a source with a protected attribute in its content.
	ReasonSourceProtected metav1.StatusReason = "SourceProtected"
	// ReasonSourceUnread is the reason for a source that could not be read for a reason that may pass.
	ReasonSourceUnread metav1.StatusReason = "SourceUnread"
)

// Source is what is known about a source of a template.
type Source struct {
	// Content is the source, or nil if it cannot be copied. Callers must not change it.
	Content *unstructured.Unstructured
	// Digest identifies the part of the content that is copied.
	Digest string
	// Size is the size of that part as JSON, in bytes.
	Size int
	// Failure is why the source cannot be copied, or nil.
	Failure *Failure
	// Lost says that the source does not exist, or that the right to read it is gone for good. Copies then follow the
	// deletionPolicy. In all other cases the copies that exist remain as they are.
	Lost bool
}

// Same reports whether copies of both are the same.
func (s Source) Same(other Source) bool {
	if (s.Failure == nil) != (other.Failure == nil) || s.Digest != other.Digest || s.Lost != other.Lost {
		return false
	}
	return s.Failure == nil || s.Failure.Error() == other.Failure.Error() && s.Failure.Reason == other.Failure.Reason
}

// Sources returns what is known about a source. A nil function knows none.
type Sources func(render.SourceRef) Source

func (s Sources) get(ref render.SourceRef) Source {
	if s == nil {
		return SourceUnread(ref, errors.New("sources are not read without a cluster"))
	}
	return s(ref)
}

// NewSource returns a source that was read. It has no content if the object must not be copied.
func NewSource(ref render.SourceRef, object *unstructured.Unstructured) Source {
	kind := object.GroupVersionKind().GroupKind()
	secretType, _, _ := unstructured.NestedString(object.Object, "type")
	switch original, isCopy := render.SourceOf(object); {
	case kind == secretKind && secretType == string(corev1.SecretTypeServiceAccountToken):
		return unsuitable(ref, "has the type "+secretType+", so it is a token of a ServiceAccount in its own namespace: "+
			"copy a Secret of another type")
	case isCopy:
		return unsuitable(ref, fmt.Sprintf("is itself a copy: copy %s instead", original))
	}
	content := maps.Clone(object.Object)
	delete(content, "metadata")
	delete(content, "status")
	data, err := json.Marshal(content)
	if err != nil {
		return SourceUnread(ref, errors.New("it cannot be encoded as JSON"))
	}
	sum := sha256.Sum256(data)
	return Source{
		Content: &unstructured.Unstructured{Object: content}, Digest: hex.EncodeToString(sum[:]), Size: len(data),
	}
}

// Guarded returns the source without content if a template inside of it, such as a pod template, has an attribute that
// a rule of the cluster protects. Users who may change the source would set the attribute in all selected namespaces.
// rules is called only if there are such templates.
func (s Source) Guarded(ref render.SourceRef, rules func() (*attributes.Rules, error)) Source {
	if s.Content == nil || !attributes.Has(s.Content.Object) {
		return s
	}
	known, err := rules()
	if err != nil {
		return SourceUnread(ref, fmt.Errorf("it is unknown which attributes are protected: %w", err))
	}
	holdsNone := func(v1alpha1.RoleReference) bool { return false }
	for _, found := range known.Judge(attributes.Change{New: s.Content.Object}, holdsNone) {
		return Source{Failure: failuref(ReasonSourceProtected, "the source %s cannot be copied: it has the %s in %s, "+
			"which %s protects: remove it there, or declare the object in spec.templates, as a user with the role", ref,
			found.Attribute, found.Path, known.Of(found.Attribute, "")[0])}
	}
	return s
}

// limited returns the source as a template may copy it: without content if it is larger than the template allows.
func (s Source) limited(template *v1alpha1.NamespaceTemplate, ref render.SourceRef) Source {
	if s.Content == nil {
		return s
	}
	_, allowed := CopiesOf(&template.Spec, ref)
	if s.Size <= allowed {
		return s
	}
	return Source{Failure: failuref(ReasonSourceTooLarge, "the source %s has %d bytes, and spec.sources allows %d: "+
		"make it smaller, or set maxSize", ref, s.Size, allowed)}
}

// CopiesOf returns how many copies a template has of a source, and the size that it allows, in bytes.
func CopiesOf(template *v1alpha1.NamespaceTemplateSpec, ref render.SourceRef) (copies, size int) {
	for i := range template.Sources {
		source := &template.Sources[i]
		if render.RefOf(source) != ref {
			continue
		}
		copies++
		allowed := v1alpha1.DefaultMaxSourceSize
		if source.MaxSize != nil {
			allowed = int(source.MaxSize.Value())
		}
		size = max(size, allowed)
	}
	return copies, size
}

func unsuitable(ref render.SourceRef, why string) Source {
	return Source{Failure: failuref(ReasonSourceUnsuitable, "the source %s cannot be copied: it %s", ref, why)}
}

// SourceNotFound returns a source that does not exist.
func SourceNotFound(ref render.SourceRef) Source {
	return Source{Lost: true, Failure: failuref(ReasonSourceNotFound,
		"the source %s does not exist: create it, or remove it from spec.sources", ref)}
}

// SourceDelayed returns a source that was lost, and may exist again. It is copied again at a later time.
func SourceDelayed(ref render.SourceRef, until time.Time) Source {
	return Source{Lost: true, Failure: failuref(ReasonSourceDelayed,
		"the source %s was lost, and is copied again at %s, if it can be copied then", ref,
		until.UTC().Format(time.RFC3339))}
}

// SourceForbidden returns a source that the operator may not read.
func SourceForbidden(ref render.SourceRef, resource schema.GroupResource) Source {
	return Source{Lost: true, Failure: &Failure{Reason: ReasonSourceForbidden, err: MissingSourceRight(ref, resource)}}
}

// Unconfirmed returns a lost source as one whose loss may pass: an API server that has just started knows no roles for
// a moment.
func (s Source) Unconfirmed() Source {
	return Source{Failure: &Failure{Reason: ReasonSourceUnread, err: s.Failure.err}}
}

// MissingSourceRight returns the error for a source that the operator may not read. It has the commands that grant the
// right.
func MissingSourceRight(ref render.SourceRef, resource schema.GroupResource) error {
	return fmt.Errorf("the operator may not get %[1]s %[2]q in namespace %[3]s: grant that with "+
		"'kubectl create role nstpl-source-%[2]s -n %[3]s --verb=get --resource=%[1]s --resource-name=%[2]s' and "+
		"'kubectl create rolebinding nstpl-source-%[2]s -n %[3]s --role=nstpl-source-%[2]s --serviceaccount=%[4]s'",
		resource, ref.Name, ref.Namespace, v1alpha1.OperatorNamespace+":"+v1alpha1.OperatorServiceAccount)
}

// SourceUnread returns a source that could not be read for a reason that may pass. The error must not contain values of
// the source.
func SourceUnread(ref render.SourceRef, err error) Source {
	return Source{Failure: failuref(ReasonSourceUnread, "the source %s cannot be read: %w", ref, err)}
}

// filled returns the objects of a template with the contents of the sources that they copy. It omits copies that would
// be written over one of the template's sources in the namespace.
func filled(objects []Object, namespace string, sources Sources) ([]Object, error) {
	protected := map[ObjectID]bool{}
	for _, object := range objects {
		if ref, isCopy := render.SourceOf(object.Unstructured); isCopy && ref.Namespace == namespace {
			protected[ObjectID{GroupKind: ref.GroupKind(), Name: ref.Name}] = true
		}
	}
	kept := objects[:0]
	for _, object := range objects {
		ref, isCopy := render.SourceOf(object.Unstructured)
		switch {
		case !isCopy:
		case protected[object.ID()]:
			continue
		default:
			if source := sources.get(ref).limited(object.Template, ref); source.Content == nil {
				object.Unavailable = &source
			} else if err := object.fill(source); err != nil {
				return nil, err
			}
		}
		kept = append(kept, object)
	}
	return kept, nil
}

// fill adds the content of a source to a copy of it. The hash is computed from the digest, because a namespace is
// planned much more often than a source changes.
func (o *Object) fill(source Source) error {
	content := maps.Clone(o.Object)
	content["source"] = source.Digest
	var err error
	if o.Hash, err = render.Hash(&unstructured.Unstructured{Object: content}); err != nil {
		return err
	}
	o.Unstructured = &unstructured.Unstructured{Object: o.Object}
	render.Fill(o.Unstructured, source.Content)
	return nil
}

// planUnavailable plans a copy whose source cannot be copied. If the source is lost, a copy that nstpl created follows
// the deletionPolicy. Otherwise the object remains as it is.
func planUnavailable(declared Declared, object *Object, observed *metav1.PartialObjectMetadata) Change {
	change := Change{
		Action: Unknown, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: object.Template.Name,
		Reason: object.Unavailable.Failure.Error(), Declared: object, Observed: observed,
		Err: object.Unavailable.Failure,
	}
	if !object.Unavailable.Lost || object.Template.Spec.DeletionPolicy != v1alpha1.DeletionDelete || observed == nil ||
		!Ours(observed) || labelOf(observed) != object.Template.Name {
		return change
	}
	change.Action, change.Declared, change.Err, change.SourceLost = Prune, nil, nil, object
	return keepProtected(declared, beingDeleted(change))
}

// sourceFinding returns the finding about an object that is deleted because its source is lost.
func sourceFinding(change Change) Finding {
	failure := change.SourceLost.Unavailable.Failure
	return Finding{
		Object: change.ID(), Template: change.Template, Severity: severity(change.SourceLost.Template),
		Reason: FindingFailed, Message: failure.Error(), Failure: failure.Reason,
		MayPass: failure.MayPass(),
	}
}

// isReplaceableCopy reports whether an object is a copy of a kind that consists of data only. It may be deleted and
// recreated without an annotation: its source, if that cannot be changed in place, was deleted and created again, too.
func (o *Object) isReplaceableCopy() bool {
	ref, isCopy := render.SourceOf(o.Unstructured)
	return isCopy && ref.Group == corev1.GroupName && (ref.Kind == "Secret" || ref.Kind == "ConfigMap")
}

// isOfCopy reports whether the change is about a copy of a source, also one that no template declares any more.
func (c Change) isOfCopy() bool {
	if object := cmp.Or(c.Declared, c.SourceLost); object != nil && object.isCopy() {
		return true
	}
	return c.Observed != nil && c.Observed.Annotations[v1alpha1.CopyOfAnnotation] != ""
}

func (o *Object) isCopy() bool {
	_, isCopy := render.SourceOf(o.Unstructured)
	return isCopy
}

// withoutItems returns paths of fields without the items of lists in them, which are named by their content. Users who
// may not read a source must not read it in the reason why a copy has drifted.
func withoutItems(paths []string) []string {
	lists := make([]string, 0, len(paths))
	for _, path := range paths {
		list, _, _ := strings.Cut(path, "[")
		lists = append(lists, list)
	}
	return slices.Compact(lists)
}
