package populate

import (
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// record is what nstpl records in annotations of an object, besides the hash of its declaration.
type record struct {
	// adopted says that the object existed before nstpl managed it, and isForged that another client wrote that.
	adopted, isForged bool
	// unowned lists the declared fields without an owner, one in each line.
	unowned string
}

// recordOf returns the record of an object. Admission protects AdoptedAnnotation only on objects with a template's
// label, so on others it does not count: see Change.isAdopted.
func recordOf(object metav1.Object) record {
	return record{
		adopted: object.GetAnnotations()[v1alpha1.AdoptedAnnotation] == "true" &&
			object.GetLabels()[v1alpha1.TemplateNameLabel] != "",
		unowned: object.GetAnnotations()[v1alpha1.UnownedAnnotation],
	}
}

// recordOn returns the record of the object that the change creates, or that it applies to an existing one.
func (c Change) recordOn(existing metav1.Object) record {
	r := recordOf(existing)
	// If its label was removed, nstpl created the object, or its replacement belongs to nstpl.
	r.adopted = c.isAdopted(existing) || !Ours(existing) && !c.replacesOwn(existing)
	r.isForged = !r.adopted && existing.GetAnnotations()[v1alpha1.AdoptedAnnotation] != ""
	return r
}

// Body returns the body of a request that applies the declared object of a change, for a dry run: its declaration, and
// the annotations that record the hash and the record. The existing object is nil if there is none.
func (c Change) Body(existing metav1.Object) ([]byte, error) {
	var r record
	if existing != nil {
		r = c.recordOn(existing)
	}
	r.unowned = expectUnowned(c.Declared, r.unowned)
	return c.Declared.bodyFor(r, precondition{})
}

// precondition is a condition that the API server checks when it receives an apply: it denies the request with a
// conflict if the condition is false. The zero value is always true.
type precondition struct {
	// absent requires that no object of the name exists.
	absent bool
	// uid requires that the existing object has this UID.
	uid types.UID
	// version requires that the existing object has this resourceVersion.
	version string
}

func (o *Object) bodyFor(r record, p precondition) ([]byte, error) {
	body := maps.Clone(o.Object)
	metadata, ok := body["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("metadata is not an object")
	}
	metadata = maps.Clone(metadata)
	annotations := map[string]any{}
	if declared, ok := metadata["annotations"].(map[string]any); ok {
		annotations = maps.Clone(declared)
	}
	annotations[v1alpha1.HashAnnotation] = o.Hash
	switch {
	case r.adopted:
		annotations[v1alpha1.AdoptedAnnotation] = "true"
	case r.isForged: // without a value, that of the other client would remain
		annotations[v1alpha1.AdoptedAnnotation] = "false"
	}
	if r.unowned != "" {
		annotations[v1alpha1.UnownedAnnotation] = r.unowned
	}
	metadata["annotations"] = annotations
	if p.absent {
		// No object ever has this resourceVersion, because etcd never gives its first revision to an object. An apply
		// to an existing object is therefore a conflict.
		metadata["resourceVersion"] = "1"
	}
	if p.uid != "" {
		metadata["uid"] = p.uid
	}
	if p.version != "" {
		metadata["resourceVersion"] = p.version
	}
	body["metadata"] = metadata
	data, err := json.Marshal(body)
	return render.EscapeJSON(data), err
}
