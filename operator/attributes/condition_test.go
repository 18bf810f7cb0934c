package attributes_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

const testMarker = "rules.policy.nstpl.dev/revision"

// compile compiles expressions as the API server compiles match conditions.
func compile(expressions []string) []cel.ConditionEvaluator {
	return compileWith(newCompiler(), expressions)
}

func newCompiler() cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
}

func compileWith(compiler cel.ConditionCompiler, expressions []string) []cel.ConditionEvaluator {
	conditions := make([]cel.ConditionEvaluator, 0, len(expressions))
	for _, expression := range expressions {
		conditions = append(conditions, compiler.CompileCondition(
			[]cel.ExpressionAccessor{&matchconditions.MatchCondition{Name: "a", Expression: expression}},
			cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions))
	}
	return conditions
}

// selects returns the number of conditions that select a change of an object.
func selects(t testing.TB, conditions []cel.ConditionEvaluator, change attributes.Change) int {
	t.Helper()
	object := func(content map[string]any) runtime.Object {
		if content == nil {
			return nil
		}
		return &unstructured.Unstructured{Object: content}
	}
	operation := admission.Update
	switch {
	case change.Old == nil:
		operation = admission.Create
	case change.New == nil:
		operation = admission.Delete
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shape"}
	old, updated := object(change.Old), object(change.New)
	attr := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(updated, old, kind, "", "a", schema.GroupVersionResource{}, "",
			operation, nil, false, nil),
		VersionedObject: admission.NewLazyObject(updated), VersionedOldObject: admission.NewLazyObject(old),
		VersionedKind: kind,
	}
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Operation(operation)}
	selected := 0
	for _, condition := range conditions {
		results, _, err := condition.ForInput(t.Context(), attr, request, cel.OptionalVariableBindings{}, nil,
			celconfig.RuntimeCELCostBudgetMatchConditions)
		require.NoError(t, err)
		require.NoError(t, results[0].Error)
		if results[0].EvalResult.Value().(bool) {
			selected++
		}
	}
	return selected
}

// rulesAbout returns a rule of the cluster about each label.
func rulesAbout(labels []string) *attributes.Rules {
	rules := make([]v1alpha1.ClusterProtectedAttribute, len(labels))
	for i, name := range labels {
		rules[i].Name, rules[i].UID = fmt.Sprint("r", i), types.UID(fmt.Sprint(i))
		rules[i].AttributeRule = v1alpha1.AttributeRule{AttributeKind: v1alpha1.LabelAttribute, AttributeName: name}
	}
	return attributes.NewRules(rules, nil)
}

func numbered(number int) []string {
	names := make([]string, number)
	for i := range names {
		names[i] = fmt.Sprintf("corp.example.com/rule-%d", i)
	}
	return names
}

// long returns names without much in common, as long as they can be.
func long(number int) []string {
	random, names := rand.New(rand.NewPCG(1, 2)), make([]string, number)
	for i := range names {
		part := func(length int) string {
			text := ""
			for range length {
				text += string(rune('a' + random.IntN(26)))
			}
			return text
		}
		names[i] = part(61) + "." + part(61) + "." + part(61) + "." + part(61) + "/" + part(63)
	}
	return names
}

func labeled(kind, key string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "a", kind: map[string]any{key: "x"}}}
}

// Exactly one condition selects a change of each protected label, and none a change of any other attribute.
func TestConditionsSelectProtectedNamesOnly(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][]string{
		"one": {"env"}, "prefixes of one another": {"a", "a-b", "a-b-c", "a.b/c", "b"},
		"32": numbered(32), "33": numbered(33), "2,000": numbered(2000), "500 long ones": long(500),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conditions := compile(rulesAbout(names).Conditions(testMarker))
			protected := map[string]bool{}
			for _, name := range names {
				protected[name] = true
			}
			for i, name := range names {
				if len(names) > 40 && i%37 > 0 {
					continue
				}
				require.Equal(t, 1, selects(t, conditions, attributes.Change{New: labeled("labels", name)}), name)
				require.Equal(t, 1, selects(t, conditions,
					attributes.Change{Old: labeled("labels", name), New: labeled("labels", "other")}), name)
				require.Zero(t, selects(t, conditions,
					attributes.Change{Old: labeled("labels", name), New: labeled("labels", name)}), name)
				require.Zero(t, selects(t, conditions, attributes.Change{New: labeled("annotations", name)}), name)
				for _, other := range []string{name + "0", name + ".", "0" + name, name[1:], name[:len(name)-1],
					strings.ToUpper(name), "'", ",", ""} {
					if !protected[other] {
						require.Zero(t, selects(t, conditions, attributes.Change{New: labeled("labels", other)}), other)
					}
				}
			}
			require.Equal(t, 1, selects(t, conditions, attributes.Change{New: labeled("annotations", testMarker)}))
			require.Zero(t, selects(t, conditions, attributes.Change{New: labeled("labels", testMarker)}))
		})
	}
}

// An object with 500 labels does not exceed the API server's limit of costs.
func TestConditionsStayWithinTheCostLimit(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][]string{"2,000": numbered(2000), "500 long ones": long(500)} {
		conditions := compile(rulesAbout(names).Conditions(testMarker))
		many := map[string]any{}
		for i, other := range long(500) {
			many[other[:60]+"/"+names[i%len(names)][:20]] = "x"
		}
		object := map[string]any{"metadata": map[string]any{"name": "a", "labels": many}}
		require.Zero(t, selects(t, conditions, attributes.Change{New: object}), name)
		require.Zero(t, selects(t, conditions, attributes.Change{Old: object, New: object}), name)
	}
}

// A user who fills the annotations of an object with as many as the API server stores keeps no other user from updating
// or deleting it.
func TestManyAnnotationsExceedNoCostLimit(t *testing.T) {
	t.Parallel()
	conditions := compile(rulesAbout([]string{"env"}).Conditions(testMarker))
	filled := func(number int, labels map[string]any) map[string]any {
		annotations := map[string]any{}
		for i := range number {
			annotations[strconv.FormatInt(int64(36*36+i), 36)] = ""
		}
		return map[string]any{"metadata": map[string]any{"name": "a", "annotations": annotations, "labels": labels}}
	}
	for _, number := range []int{20_000, 60_000} {
		full, other := filled(number, map[string]any{"a": "b"}), filled(number, map[string]any{"a": "c"})
		require.Zero(t, selects(t, conditions, attributes.Change{Old: full, New: full}))
		require.Zero(t, selects(t, conditions, attributes.Change{Old: full, New: other}))
		protected := filled(number, map[string]any{"env": "c"})
		require.Equal(t, 1, selects(t, conditions, attributes.Change{Old: full, New: protected}))
		// Judge decides about so many that change.
		for name, change := range map[string]attributes.Change{
			"created": {New: full}, "deleted": {Old: full},
			"one more": {Old: full, New: filled(number+1, nil)}, "emptied": {Old: full, New: filled(1, nil)},
		} {
			require.Equal(t, 1, selects(t, conditions, change), name)
		}
	}
}

// The API server would compare each volume with each other one, at no cost that it counts. Judge decides about so many
// that change.
func TestLongListsAreNotCompared(t *testing.T) {
	t.Parallel()
	conditions := compile(rulesAbout([]string{"env"}).Conditions(testMarker))
	deployment := func(first, number int, image string) map[string]any {
		volumes := make([]any, number)
		for i := range volumes {
			volumes[i] = map[string]any{"name": fmt.Sprint("v", first+i), "emptyDir": map[string]any{}}
		}
		return map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"volumes": volumes, "image": image}},
		}}
	}
	require.Zero(t, selects(t, conditions, attributes.Change{Old: deployment(0, 100, "a"), New: deployment(1, 100, "a")}))
	require.Zero(t, selects(t, conditions, attributes.Change{Old: deployment(0, 200, "a"), New: deployment(0, 200, "b")}))
	require.Equal(t, 1,
		selects(t, conditions, attributes.Change{Old: deployment(0, 200, "a"), New: deployment(1, 200, "a")}))
}

// A field whose name is empty does not hide a template.
func TestConditionsFindTemplatesBesideEmptyFields(t *testing.T) {
	t.Parallel()
	conditions := compile(rulesAbout([]string{"env"}).Conditions(testMarker))
	template := labeled("labels", "env")
	template[""] = map[string]any{"": "x"}
	template["metadata"].(map[string]any)[""] = map[string]any{}
	object := labeled("labels", "other")
	object["spec"] = map[string]any{"": map[string]any{}, "template": template}
	require.Equal(t, 1, selects(t, conditions, attributes.Change{New: object}))
}

// The sum of objects depends on their UIDs and generations, and not on their order.
func TestSumIsThatOfTheObjects(t *testing.T) {
	t.Parallel()
	object := func(uid string, generation int64) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{UID: types.UID(uid), Generation: generation}
	}
	var a, b attributes.Sum
	a.Add(object("x", 1))
	a.Add(object("y", 1))
	b.Add(object("y", 1))
	b.Add(object("z", 1))
	require.NotEqual(t, a.Revision(), b.Revision())
	b.Add(object("x", 1))
	b.Remove(object("z", 1))
	require.Equal(t, a.Revision(), b.Revision())
	b.Remove(object("x", 1))
	b.Add(object("x", 2))
	require.NotEqual(t, a.Revision(), b.Revision())
}

// BenchmarkConditions measures how long the API server compiles the match conditions after each change of rules, and
// evaluates them for a write that no rule concerns.
func BenchmarkConditions(b *testing.B) {
	pod := labeled("labels", "app")
	pod["spec"] = map[string]any{"volumes": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}}
	compiler := newCompiler()
	for _, number := range []int{3, 100, 2000} {
		expressions := rulesAbout(numbered(number)).Conditions(testMarker)
		b.Run(fmt.Sprintf("compile %d", number), func(b *testing.B) {
			for b.Loop() {
				compileWith(compiler, expressions)
			}
		})
		conditions := compileWith(compiler, expressions)
		for name, change := range map[string]attributes.Change{
			"create a ConfigMap": {New: labeled("labels", "app")}, "create a Pod": {New: pod},
			"update a ConfigMap": {Old: labeled("labels", "app"), New: labeled("labels", "app")},
		} {
			b.Run(fmt.Sprintf("%s %d", name, number), func(b *testing.B) {
				for b.Loop() {
					selects(b, conditions, change)
				}
			})
		}
	}
}
