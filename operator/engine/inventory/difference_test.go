package inventory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDifference(t *testing.T) {
	t.Parallel()
	nothing := func(*unstructured.Unstructured) {}
	rule := func(verbs ...any) map[string]any { return map[string]any{"verbs": verbs} }
	for name, test := range map[string]struct {
		declared, live change
		want           string
	}{
		"the same":              {withRules(rule("get")), withRules(rule("get")), ""},
		"more fields":           {withRules(), withRules(rule("get")), "rules"},
		"an item":               {withRules(0, rule("get", "a")), withRules(0, rule("get", "b")), "rules[1].verbs[1]"},
		"another number":        {withRules(rule("list", "watch")), withRules(rule("list")), "rules[0].verbs"},
		"missing":               {ofTree("foo"), nothing, `metadata.labels["policy.nstpl.dev/tree"]`},
		"a label":               {ofTree("foo"), ofTree("bar"), `metadata.labels["policy.nstpl.dev/tree"]`},
		"a label of others":     {nothing, ofTree("bar"), ""},
		"numbers of two types":  {withRules(int64(1)), withRules(float64(1)), ""},
		"a large number":        {withRules(int64(1<<53 + 1)), withRules(int64(1 << 53)), "rules[0]"},
		"an empty list of none": {withRules(), nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Difference(role("a", test.declared), role("a", test.live)).String())
		})
	}
}

func TestManagerOf(t *testing.T) {
	t.Parallel()
	entry := func(manager, fields string, second int64) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: &metav1.FieldsV1{}}
		e.FieldsV1.SetRawString(fields)
		e.Time = new(metav1.NewTime(time.Unix(second, 0)))
		return e
	}
	object := role("a")
	require.Empty(t, ManagerOf(object, Field{"rules"}, "nstpl-sync"))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("nstpl-sync", `{"f:rules":{},"f:metadata":{"f:labels":{"f:team":{}}}}`, 9),
		entry("kubectl-edit", `{"f:rules":{}}`, 1),
		entry("former", `{"f:metadata":{"f:labels":{"f:team":{}}}}`, 1),
		entry("labeler", `{"f:metadata":{"f:labels":{"f:team":{}}}}`, 2),
		entry("annotator", `{"f:metadata":{"f:annotations":{}}}`, 3),
	})
	require.Equal(t, "kubectl-edit", ManagerOf(object, Field{"rules", "0", "verbs"}, "nstpl-sync"))
	require.Equal(t, "labeler", ManagerOf(object, Field{"metadata", "labels", "team"}, "nstpl-sync"))
	require.Empty(t, ManagerOf(object, Field{"spec"}, "nstpl-sync"))
}
