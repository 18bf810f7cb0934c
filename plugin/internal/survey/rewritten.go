package survey

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rewrittenField returns a declared field of which the stored object has another value or none, such as
// .spec.podSelector, or "". It reports no field that may only be written in another way: quantities, durations, times,
// the order of lists, items that others added to a list, and values that mean the same as none.
func rewrittenField(declared, stored *unstructured.Unstructured) string {
	object := declared.DeepCopy()
	switch object.GroupVersionKind().GroupKind() {
	case corev1.SchemeGroupVersion.WithKind("Secret").GroupKind():
		delete(object.Object, "stringData") // is stored in data
	case corev1.SchemeGroupVersion.WithKind("Endpoints").GroupKind():
		delete(object.Object, "subsets") // are grouped in another way
	}
	delete(object.Object, "status")
	unstructured.RemoveNestedField(object.Object, "metadata", "namespace")
	return rewritten("", object.Object, stored.Object)
}

// rewritten returns the path of a declared value of which the stored value differs, or "".
func rewritten(path string, declared, stored any) string {
	if isEmpty(declared) && isEmpty(stored) {
		return ""
	}
	switch declared := declared.(type) {
	case map[string]any:
		fields, isMap := stored.(map[string]any)
		if !isMap && !isEmpty(declared) {
			return path
		}
		for _, key := range slices.Sorted(maps.Keys(declared)) {
			if at := rewritten(path+"."+key, declared[key], fields[key]); at != "" {
				return at
			}
		}
		return ""
	case []any:
		items, _ := stored.([]any)
		for i, item := range declared {
			if !slices.ContainsFunc(items, func(s any) bool { return rewritten("item", item, s) == "" }) {
				return fmt.Sprintf("%s[%d]", path, i)
			}
		}
		return ""
	}
	if meansSame(declared, stored) {
		return ""
	}
	return path
}

// isEmpty reports whether the API server may leave a value out when it stores an object.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return reflect.ValueOf(value).IsZero()
}

// meansSame reports whether two scalars are equal, or may be two ways to write the same.
func meansSame(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	left, right := fmt.Sprint(a), fmt.Sprint(b)
	if left == right {
		return true
	}
	if x, y, ok := both(resource.ParseQuantity, left, right); ok {
		return x.Cmp(y) == 0
	}
	if x, y, ok := both(time.ParseDuration, left, right); ok {
		return x == y
	}
	rfc3339 := func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }
	if x, y, ok := both(rfc3339, left, right); ok {
		return x.Equal(y)
	}
	x, y, ok := both(base64.StdEncoding.DecodeString, left, right)
	return ok && bytes.Equal(x, y)
}

// both parses two texts, and reports whether both are valid.
func both[T any](parse func(string) (T, error), left, right string) (x, y T, ok bool) {
	x, errX := parse(left)
	y, errY := parse(right)
	return x, y, errX == nil && errY == nil
}
