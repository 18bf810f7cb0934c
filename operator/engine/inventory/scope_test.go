package inventory

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// A change concerns a tree if the plan after it may differ from the plan before.
func TestScopeConcerns(t *testing.T) {
	t.Parallel()
	declared, err := Declare([]*unstructured.Unstructured{
		role("viewer", ofTree("t")), namespace("team-a", ofTree("t")),
	})
	require.NoError(t, err)
	with := func(object *unstructured.Unstructured, changes ...change) *unstructured.Unstructured {
		object = object.DeepCopy()
		for _, change := range changes {
			change(object)
		}
		return object
	}
	viewer, teamA := declared[0], declared[1]
	adopted := []change{ofTree("t"), annotated(v1alpha1.HashAnnotation, "1")}
	label := func(key, value string) change {
		return func(o *unstructured.Unstructured) {
			labels := o.GetLabels()
			labels[key] = value
			o.SetLabels(labels)
		}
	}
	scope := NewScope("t", declared, map[types.UID]bool{"created": true},
		map[ID]bool{render.IDOf(role("late")): true})
	for name, test := range map[string]struct {
		before, after *unstructured.Unstructured
		want          bool
	}{
		"a declared object is created":            {nil, viewer, true},
		"a declared object is deleted":            {viewer, nil, true},
		"a declared object is being deleted":      {viewer, with(viewer, deleting), true},
		"a declared object loses a field":         {viewer, with(viewer, ofTree("other")), true},
		"a declared object stays changed":         {with(viewer, ofTree("a")), with(viewer, ofTree("b")), true},
		"a declared object comes into force":      {with(viewer, ofTree("other")), viewer, true},
		"a declared object gets another label":    {viewer, with(viewer, label("team", "a")), false},
		"a declared namespace gets another label": {teamA, with(teamA, label("team", "a")), false},
		"a declared namespace may be adopted": {
			teamA, with(teamA, annotated(v1alpha1.AdoptAnnotation, "true")), true,
		},
		"an object without a tree is created":            {nil, role("other"), false},
		"an object without a tree is deleted":            {role("other"), nil, false},
		"an object without a tree changes":               {role("other"), role("other", annotated("a", "b")), false},
		"an object of another tree changes":              {role("other", ofTree("o")), role("other", ofTree("p")), false},
		"an object whose creation is pending is created": {nil, role("late"), true},
		"an object that was created is deleted":          {role("old", uid("created")), nil, true},
		"an object that was created is edited": {
			role("old", uid("created")), role("old", uid("created"), annotated("a", "b")), false,
		},
		"an object that is kept for another tree is for none now": {
			role("old", uid("created"), ofTree("o")), role("old", uid("created")), true,
		},
		"a namespace that is kept loses its protection": {
			namespace("old", uid("created"), protected), namespace("old", uid("created")), true,
		},
		"a namespace of others loses its protection": {
			namespace("other", protected), namespace("other"), false,
		},
		"a namespace that waits is being deleted": {
			namespace("old", uid("created")), namespace("old", uid("created"), deleting), true,
		},
		"an adopted namespace that is not declared": {nil, namespace("old", adopted...), true},
		"a namespace with only the tree's label":    {nil, namespace("old", ofTree("t")), false},
		"a namespace loses its adoption":            {namespace("old", adopted...), namespace("old"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, scope.Concerns(test.before, test.after))
		})
	}
}
