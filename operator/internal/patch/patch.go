// Package patch provides patches that the API server rejects if the object, or the part of it on which the patch
// depends, has changed since it was read.
//
// A write of an earlier leader may reach the API server after the next leader has written. Without such a patch it
// would undo a newer decision. A rejected patch is not an error of the caller: IsStale recognizes it, and the caller
// reconciles the object again with what is stored now.
package patch

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WhileUnchanged returns a merge patch of the difference to an object. The API server answers with a conflict if the
// stored object has another resourceVersion.
func WhileUnchanged(object client.Object) client.Patch {
	return client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
}

// IsStale reports whether a write was rejected because the object had changed. The API server answers a JSON patch
// whose test fails with status 422, like an invalid object, but then the answer names no object.
func IsStale(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	return apierrors.IsConflict(err) || is && apierrors.IsInvalid(err) &&
		(status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind == "")
}

// Tested is a JSON patch that tests the fields on which its changes depend. The API server rejects it with status 422
// if one of them has another value. Unlike a patch with a resourceVersion, it is applied even if other fields have
// changed.
type Tested []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func pointer(parts ...string) string {
	var path strings.Builder
	for _, part := range parts {
		path.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return path.String()
}

// Test requires that a field has a value, or does not exist if the value is nil.
func (p Tested) Test(path string, value any) Tested {
	return append(p, operation{"test", path, value})
}

// Set sets a field without a test.
func (p Tested) Set(path string, value any) Tested {
	return append(p, operation{"add", path, value})
}

// Remove removes a field without a test.
func (p Tested) Remove(path string) Tested {
	return append(p, operation{"remove", path, nil})
}

// TestIn requires that keys of a map of strings, such as annotations, have the values that they have in a map, or that
// they do not exist.
func (p Tested) TestIn(path string, values map[string]string, keys ...string) Tested {
	for _, key := range keys {
		if len(values) == 0 {
			return p.Test(path, nil)
		}
		var current any
		if value, exists := values[key]; exists {
			current = value
		}
		p = p.Test(path+pointer(key), current)
	}
	return p
}

// Change sets and removes the keys of a map of strings that differ in before and after. It does not test their values.
// If before has no keys, it tests that the map still does not exist.
func (p Tested) Change(path string, before, after map[string]string) Tested {
	if len(before) == 0 && len(after) > 0 {
		return p.Test(path, nil).Set(path, after)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, exists := after[key]; !exists {
			p = p.Remove(path + pointer(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, exists := before[key]; !exists || value != after[key] {
			p = p.Set(path+pointer(key), after[key])
		}
	}
	return p
}

// SetIn sets keys of a map of strings. It tests that these keys, and others, still have the values that they have in
// before.
func (p Tested) SetIn(path string, before, changes map[string]string, others ...string) Tested {
	if len(before) == 0 {
		return p.Change(path, nil, changes)
	}
	after := maps.Clone(before)
	maps.Copy(after, changes)
	tested := slices.AppendSeq(slices.Clone(others), maps.Keys(changes))
	slices.Sort(tested)
	return p.TestIn(path, before, slices.Compact(tested)...).Change(path, before, after)
}

// Type implements client.Patch.
func (p Tested) Type() types.PatchType { return types.JSONPatchType }

// Data implements client.Patch.
func (p Tested) Data(client.Object) ([]byte, error) { return json.Marshal(p) }
