package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type compiledObject struct {
	unstructured.Unstructured
	needsCreator bool
	// hash is that of the object if it is the same in every namespace, and otherwise empty.
	hash string
}

// Object is an object of a compiled template for one namespace.
type Object struct {
	*unstructured.Unstructured
	// Hash identifies the content, without the namespace.
	Hash string
}

var secretKind = schema.GroupKind{Kind: "Secret"}

func newCompiledObject(object *unstructured.Unstructured) (compiledObject, error) {
	compiled := compiledObject{Unstructured: *object, needsCreator: containsToken(object.Object, CreatorToken)}
	// The data of Secrets is never shared.
	if object.GroupVersionKind().GroupKind() == secretKind || !isSameEverywhere(withoutNamespace(object)) {
		return compiled, nil
	}
	var err error
	compiled.hash, err = Hash(object)
	return compiled, err
}

// isSameEverywhere reports whether a JSON value contains neither a token nor an escaped one.
func isSameEverywhere(value any) bool {
	for inside := range within(value) {
		if text, ok := inside.(string); ok && strings.Contains(text, "$(") {
			return false
		}
	}
	return true
}

// stamp returns the object for one namespace.
func (o *compiledObject) stamp(values Values) (Object, error) {
	if o.hash == "" {
		object := values.stampObject(&o.Unstructured)
		object.SetNamespace(values.Namespace)
		if problem := join(checkQuantities(object)); problem != nil { // a value of the namespace made it so
			return Object{}, fmt.Errorf("%s: %w", IDOf(object), problem)
		}
		hash, err := Hash(object)
		return Object{object, hash}, err
	}
	object := &unstructured.Unstructured{Object: withoutNamespace(&o.Unstructured)}
	object.SetNamespace(values.Namespace)
	return Object{object, o.hash}, nil
}

// Hash returns a hash of the object's JSON, whose keys are sorted. It omits the namespace, so that equal objects in
// many namespaces have the same hash. 64 bits suffice to distinguish the few contents that one object ever has. A user
// gains nothing by a collision, because the ownership in managedFields is compared too.
func Hash(object *unstructured.Unstructured) (string, error) {
	data, err := json.Marshal(withoutNamespace(object))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// withoutNamespace returns the content of an object without its namespace. It copies the object itself and its
// metadata, and shares everything below them.
func withoutNamespace(object *unstructured.Unstructured) map[string]any {
	content := maps.Clone(object.Object)
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "namespace")
		content["metadata"] = metadata
	}
	return content
}
