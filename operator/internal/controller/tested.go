package controller

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

// whileUnchanged returns a merge patch of the difference to an object. The API server refuses it with a conflict once
// the object is another, as when it was written by another leader.
func whileUnchanged(object client.Object) client.Patch {
	return client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
}

// isStale reports whether a write was refused because what it was decided by changed meanwhile. A JSON patch whose test
// fails is answered as invalid like an object that is, but the answer names no object.
func isStale(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	return apierrors.IsConflict(err) || is && apierrors.IsInvalid(err) &&
		(status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind == "")
}

// testedPatch is a JSON patch that tests what its changes were decided by. The API server refuses it with status 422 if
// something else was written meanwhile, such as by another leader. Unlike a patch with a resourceVersion, it is not
// refused because of other fields.
type testedPatch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// pointer returns a JSON pointer.
func pointer(parts ...string) string {
	var path strings.Builder
	for _, part := range parts {
		path.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return path.String()
}

// test demands that a field has a value, or is absent if the value is nil.
func (p testedPatch) test(path string, value any) testedPatch {
	return append(p, operation{"test", path, value})
}

// change sets a field without a test.
func (p testedPatch) change(path string, value any) testedPatch {
	return append(p, operation{"add", path, value})
}

// changeIn sets keys of a map of strings, such as annotations, and demands that they are as they were, and other keys
// too.
func (p testedPatch) changeIn(path string, before, changes map[string]string, others ...string) testedPatch {
	if len(before) == 0 {
		return p.test(path, nil).change(path, changes)
	}
	tested := slices.AppendSeq(slices.Clone(others), maps.Keys(changes))
	slices.Sort(tested)
	for _, key := range slices.Compact(tested) {
		var known any
		if value, there := before[key]; there {
			known = value
		}
		p = p.test(path+pointer(key), known)
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		p = p.change(path+pointer(key), changes[key])
	}
	return p
}

// Type implements client.Patch.
func (p testedPatch) Type() types.PatchType { return types.JSONPatchType }

// Data implements client.Patch.
func (p testedPatch) Data(client.Object) ([]byte, error) { return json.Marshal(p) }
