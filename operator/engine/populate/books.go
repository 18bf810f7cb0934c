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

// books are what annotations of an object say of it, besides the hash.
type books struct {
	adopted bool
	// unowned are the declared fields without an owner, a line each.
	unowned string
}

func booksOf(object metav1.Object) books {
	return books{
		adopted: object.GetAnnotations()[v1alpha1.AdoptedAnnotation] == "true",
		unowned: object.GetAnnotations()[v1alpha1.UnownedAnnotation],
	}
}

// Body returns the apply configuration of an object over what is there, which may be nil: what is declared, and the
// annotations that this package keeps its books in.
func Body(object *Object, there metav1.Object) ([]byte, error) {
	var kept books
	if there != nil {
		kept = booksOf(there)
		kept.adopted = !Ours(there)
	}
	kept.unowned = expectUnowned(object, kept.unowned)
	return object.body(kept)
}

func (o *Object) body(b books) ([]byte, error) { return o.bodyFor(b, precondition{}) }

// precondition is what must be so of what an apply finds. The zero value asks for nothing.
type precondition struct {
	// absent asks that there is no object of the name.
	absent bool
	// uid asks that the object is this one.
	uid types.UID
	// version asks that the object has this resourceVersion.
	version string
}

func (o *Object) bodyFor(b books, p precondition) ([]byte, error) {
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
	if b.adopted {
		annotations[v1alpha1.AdoptedAnnotation] = "true"
	}
	if b.unowned != "" {
		annotations[v1alpha1.UnownedAnnotation] = b.unowned
	}
	metadata["annotations"] = annotations
	if p.absent {
		// No object ever has it: etcd's first revision is not an object's. So an apply that finds one is a conflict.
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
