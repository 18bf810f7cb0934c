package hierarchy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func TestPredecessors(t *testing.T) {
	t.Parallel()
	object := func(version, kind, name, tree string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(version)
		o.SetKind(kind)
		o.SetName(name)
		o.SetLabels(map[string]string{v1alpha1.TreeLabel: tree})
		return o
	}
	space := func(name, tree string) *unstructured.Unstructured {
		return object("policy.nstpl.dev/v1alpha1", "PolicySpace", name, tree)
	}
	ns := func(name, tree string) *unstructured.Unstructured { return object("v1", "Namespace", name, tree) }
	type objects = []*unstructured.Unstructured
	declared := objects{space("new", "new"), space("eng", "new"), ns("dev", "new"), ns("prod", "new")}
	for name, test := range map[string]struct {
		live objects
		want []string
	}{
		"the same root":      {objects{space("new", "new"), space("eng", "new"), ns("dev", "new")}, nil},
		"a renamed root":     {objects{space("old", "old"), space("eng", "old"), ns("dev", "old"), ns("prod", "old")}, []string{"old"}},
		"only the root left": {objects{space("old", "old"), space("new", "new"), space("eng", "new"), ns("dev", "new")}, nil},
		"midway":             {objects{space("old", "old"), space("new", "new"), space("eng", "new"), ns("dev", "old")}, []string{"old"}},
		"one that gives up a namespace": {
			objects{space("other", "other"), space("sales", "other"), ns("dev", "other")}, nil,
		},
		"one that keeps a namespace": {objects{space("other", "other"), ns("shop", "other"), ns("dev", "other")}, nil},
		"other trees":                {objects{space("other", "other"), ns("shop", "other")}, nil},
		"of no tree":                 {objects{space("old", ""), ns("dev", "")}, nil},
	} {
		require.Equal(t, test.want, hierarchy.Predecessors("new", test.live, declared), name)
	}
}
