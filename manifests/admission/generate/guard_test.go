package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// mayOnlyOptOut has the rights of a user who opts namespaces out and in.
type mayOnlyOptOut struct{}

func (mayOnlyOptOut) Authorize(
	_ context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	if attributes.GetVerb() == "optout" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// expression is a variable or, without a name, a validation.
type expression struct{ name, text string }

func (e expression) GetName() string          { return e.name }
func (expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType} }
func (e expression) GetExpression() string    { return e.text }

// namespaceGuard has the validations of nstpl-namespace-guard, compiled as the API server compiles them.
type namespaceGuard struct {
	compiler  *cel.CompositedCompiler
	evaluator cel.ConditionEvaluator
	messages  []string
}

func newNamespaceGuard(t *testing.T) namespaceGuard {
	t.Helper()
	files, err := render()
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(files["guards.yaml"]), "\n---\n")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(first), policy))
	require.Equal(t, "nstpl-namespace-guard", policy.Name)

	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	guard, declared := namespaceGuard{compiler: compiler}, cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, variable := range policy.Spec.Variables {
		compiled := compiler.CompileAndStoreVariable(expression{variable.Name, variable.Expression}, declared, environment.StoredExpressions)
		require.Nil(t, compiled.Error, variable.Name)
	}
	var validations []cel.ExpressionAccessor
	for _, validation := range policy.Spec.Validations {
		validations = append(validations, expression{"", validation.Expression})
		guard.messages = append(guard.messages, validation.Message+validation.MessageExpression)
	}
	guard.evaluator = compiler.CompileCondition(validations, declared, environment.StoredExpressions)
	require.Empty(t, guard.evaluator.CompilationErrors())
	return guard
}

// evaluate returns the results for an update by a user who may only opt out and in, and what the API server counts for it.
func (g namespaceGuard) evaluate(
	t *testing.T, evaluator cel.ConditionEvaluator, old, updated map[string]any,
) (results []cel.EvaluationResult, cost int64) {
	t.Helper()
	before, after := &unstructured.Unstructured{Object: old}, &unstructured.Unstructured{Object: updated}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(after, before, kind, "", "team-a",
			schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", admission.Update, nil, false, nil),
		VersionedObject: admission.NewLazyObject(after), VersionedOldObject: admission.NewLazyObject(before),
		VersionedKind: kind,
	}
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: "alice"},
	}
	results, left, err := evaluator.ForInput(g.compiler.CreateContext(t.Context()), attributes, request,
		cel.OptionalVariableBindings{Authorizer: mayOnlyOptOut{}}, nil, celconfig.RuntimeCELCostBudget)
	require.NoError(t, err)
	return results, celconfig.RuntimeCELCostBudget - left
}

// denials returns the messages with which the policy denies an update by a user who may only opt out and in.
func (g namespaceGuard) denials(t *testing.T, old, updated map[string]any) []string {
	t.Helper()
	var denials []string
	results, _ := g.evaluate(t, g.evaluator, old, updated)
	for i, result := range results {
		require.NoError(t, result.Error, g.messages[i])
		if result.EvalResult.Value() != true {
			denials = append(denials, g.messages[i])
		}
	}
	return denials
}

// namespace returns a namespace with some labels and annotations.
func namespace(labels, annotations map[string]any, conditions ...any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "team-a", "labels": labels, "annotations": annotations},
		"status":   map[string]any{"conditions": conditions},
	}
}

// pairs returns that many labels or annotations of a value.
func pairs(number int, value string) map[string]any {
	all := map[string]any{}
	for i := range number {
		all[fmt.Sprintf("n%05d", i)] = value
	}
	return all
}

func condition(name string, bytes int) any {
	return map[string]any{"type": name, "status": "True", "message": strings.Repeat("x", bytes)}
}

// A loop of CEL takes the API server a time that grows with the square of what it loops over, whatever it counts. So no
// loop is over all that a user writes: one alone would count more than five for each label or annotation.
func TestLargeWritesAreNotLoopedOver(t *testing.T) {
	t.Parallel()
	guard, few := newNamespaceGuard(t), pairs(3, "x")
	const number = 10_000
	for name, objects := range map[string]struct{ old, updated map[string]any }{
		"new annotations":     {namespace(few, few), namespace(few, pairs(number, "x"))},
		"changed annotations": {namespace(few, pairs(number, "x")), namespace(few, pairs(number, "y"))},
		"removed annotations": {namespace(few, pairs(number, "x")), namespace(few, few)},
		"new labels":          {namespace(few, few), namespace(pairs(number, "x"), few)},
		"changed labels":      {namespace(pairs(number, "x"), few), namespace(pairs(number, "y"), few)},
		"removed labels":      {namespace(pairs(number, "x"), few), namespace(few, few)},
	} {
		_, cost := guard.evaluate(t, guard.evaluator, objects.old, objects.updated)
		require.Less(t, cost, int64(5*number), name)
	}
}

// A user must not gain with each update what the operator's own condition takes.
func TestConditionsDoNotGrow(t *testing.T) {
	t.Parallel()
	guard := newNamespaceGuard(t)
	populated := condition("policy.nstpl.dev/Populated", 20_000)
	list := func(number, bytes int, others ...any) []any {
		for i := range number {
			others = append(others, condition(fmt.Sprintf("example.com/%d", i), bytes))
		}
		return others
	}
	const message = "the conditions of a namespace must not have more than 65536 bytes"
	stored := list(300, 300, populated)
	for name, test := range map[string]struct {
		conditions []any
		denied     bool
	}{
		"grow by one byte":            {append(list(299, 300, populated), condition("example.com/299", 301)), true},
		"grow as much as the record":  {append(list(299, 300, populated), condition("example.com/299", 20_000)), true},
		"stay":                        {stored, false},
		"fewer than the limit remain": {stored[:200], false},
		"none remains":                {[]any{populated}, false},
		"the rest is small":           {list(300, 10, populated), false},
	} {
		denials := guard.denials(t, namespace(nil, nil, stored...), namespace(nil, nil, test.conditions...))
		if test.denied {
			require.Len(t, denials, 1, name)
			require.Contains(t, denials[0], message, name)
		} else {
			require.Empty(t, denials, name)
		}
	}
}

// nstpl-template-use does not look up more than 512 labels. So a user who opts such a namespace in removes labels.
func TestNamespacesWithManyLabelsAreNotOptedIn(t *testing.T) {
	t.Parallel()
	guard := newNamespaceGuard(t)
	optedOut := func(value string) map[string]any {
		return map[string]any{"policy/namespace-template-opt-out": value}
	}
	many := pairs(513, "x")
	for _, value := range []string{"true", "a-template"} {
		denials := guard.denials(t, namespace(many, optedOut(value)), namespace(many, nil))
		require.Len(t, denials, 1)
		require.Contains(t, denials[0], "a namespace may have at most 256 labels")
		require.Empty(t, guard.denials(t, namespace(pairs(512, "x"), optedOut(value)), namespace(pairs(512, "x"), nil)))
	}
	other := optedOut("true")
	other["other"] = "x"
	require.Empty(t, guard.denials(t, namespace(many, optedOut("true")), namespace(many, other)))
	require.Empty(t, guard.denials(t, namespace(many, optedOut("true")), namespace(pairs(200, "x"), nil)))
}

// Characters that take more bytes with quotes than without must not make room for others.
func TestManyAnnotationsDoNotGrow(t *testing.T) {
	t.Parallel()
	guard := newNamespaceGuard(t)
	const message = "the annotations of a namespace must not take more than 192 KiB"
	stored := pairs(2500, strings.Repeat("\n", 80))
	denials := guard.denials(t, namespace(nil, stored), namespace(nil, pairs(2500, strings.Repeat("x", 100))))
	require.Len(t, denials, 1)
	require.Contains(t, denials[0], message)

	require.Empty(t, guard.denials(t, namespace(nil, stored), namespace(map[string]any{"a": "b"}, stored)))
	require.Empty(t, guard.denials(t, namespace(nil, stored), namespace(nil, pairs(2000, strings.Repeat("\n", 80)))))
	require.Empty(t, guard.denials(t, namespace(nil, stored), namespace(nil, nil)))
}

// The operator's webhook does the work of the policy in API servers before Kubernetes 1.36.
func TestThePolicyAndTheWebhookReadTheSameInitializers(t *testing.T) {
	t.Parallel()
	guard := newNamespaceGuard(t)
	list := guard.compiler.CompileCondition([]cel.ExpressionAccessor{expression{text: pendingInitializers()}},
		cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	require.Empty(t, list.CompilationErrors())
	for text, number := range map[string]int{
		"": 0, ",": 0, "a,,b": 2, strings.Repeat("é", 8192): 1, strings.Repeat("é", 8193): 0,
		strings.Join(slices.Sorted(maps.Keys(pairs(512, ""))), ","): 512,
		strings.Join(slices.Sorted(maps.Keys(pairs(513, ""))), ","): 0,
		strings.Repeat(",", 511) + "a":                              1,
		strings.Repeat(",", 512) + "a":                              0,
	} {
		created := namespace(nil, map[string]any{v1alpha1.PendingAnnotation: text})
		results, _ := guard.evaluate(t, list, nil, created)
		require.NoError(t, results[0].Error)
		require.Equal(t, types.Int(number), results[0].EvalResult.(traits.Lister).Size(), "%.20s", text)
		require.Len(t, initialize.Requested(&unstructured.Unstructured{Object: created}), number, "%.20s", text)
	}
}
