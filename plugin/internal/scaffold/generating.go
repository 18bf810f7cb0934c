package scaffold

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// addGeneratingPolicy converts a GeneratingPolicy. Each object that it generates becomes a rule of a ClusterPolicy, and
// that is converted. CEL expressions are not evaluated: only literals, the name of the namespace and its creator are
// known.
func (d *draft) addGeneratingPolicy(ctx context.Context, policy *unstructured.Unstructured, conditions []string) {
	i := d.item("generatingpolicy/%s", policy.GetName())
	expressions := celExpressions{}
	for _, variable := range each(policy.Object, "spec", "variables") {
		expressions[at[string](variable, "name")] = at[string](variable, "expression")
	}
	var generated []map[string]any
	for n, generate := range each(policy.Object, "spec", "generate") {
		found, err := expressions.generated(generate)
		if err != nil {
			i.fail(nil, fmt.Sprintf("generate[%d]", n), err)
			continue
		}
		generated = append(generated, found...)
	}
	for n, generate := range generated {
		rule := kyvernoRule{item: i, name: objectName(policy.GetName()), title: "GeneratingPolicy " + policy.GetName()}
		rule.conditions = conditions
		if len(generated) > 1 {
			rule.name = objectName(policy.GetName(), fmt.Sprint(n))
		}
		rule.fields = triggerOf(policy)
		rule.fields["generate"] = generate
		for _, option := range []string{"synchronize", "generateExisting", "orphanDownstreamOnPolicyDelete"} {
			generate[option] = at[bool](policy.Object, "spec", "evaluation", option, "enabled")
		}
		d.addKyvernoRule(ctx, rule)
	}
}

// triggerOf returns the match and exclude blocks of a rule with the constraints and conditions of a GeneratingPolicy.
func triggerOf(policy *unstructured.Unstructured) map[string]any {
	constraints := at[map[string]any](policy.Object, "spec", "matchConstraints")
	var kinds, operations []any
	rules := each(constraints, "resourceRules")
	for _, rule := range rules {
		kind := "another kind"
		if slices.Equal(texts(rule, "resources"), []string{"namespaces"}) && slices.Equal(texts(rule, "apiGroups"), []string{""}) {
			kind = "Namespace"
		}
		kinds, operations = append(kinds, kind), append(operations, at[[]any](rule, "operations")...)
	}
	filter := map[string]any{"kinds": kinds, "operations": operations}
	filters := []any{map[string]any{"resources": filter}}
	// Both selectors are about the labels of the Namespace itself.
	for _, field := range []string{"objectSelector", "namespaceSelector"} {
		if selector := constraints[field]; selector != nil {
			filters = append(filters, map[string]any{"resources": map[string]any{"kinds": kinds, "selector": selector}})
		}
	}
	fields := map[string]any{"match": map[string]any{"all": filters}}
	for _, rule := range rules {
		if rule["resourceNames"] != nil {
			filter["names"] = rule["resourceNames"]
			if len(rules) > 1 { // another rule may have other names
				fields["several resourceRules"] = true
			}
		}
	}
	var excluded []any
	for _, condition := range each(policy.Object, "spec", "matchConditions") {
		names, err := excludedNames(at[string](condition, "expression"))
		if err != nil {
			fields["matchConditions"] = true
			continue
		}
		excluded = append(excluded, map[string]any{"resources": map[string]any{"names": names}})
	}
	if len(excluded) > 0 {
		fields["exclude"] = map[string]any{"any": excluded}
	}
	if constraints["excludeResourceRules"] != nil {
		fields["excludeResourceRules"] = true
	}
	return fields
}

// triggeringName is the variable for the name of the namespace in a ClusterPolicy.
const triggeringName = "{{request.object.metadata.name}}"

// celVariables are the variables of a ClusterPolicy for expressions.
var celVariables = map[string]string{
	"object.metadata.name": triggeringName, "request.name": triggeringName, "request.namespace": triggeringName,
	"request.userInfo.username": "{{request.userInfo.username}}",
}

// celExpressions are the variables of a GeneratingPolicy.
type celExpressions map[string]string

// celParser parses expressions. It declares no variables, since they are not evaluated.
var celParser = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv() })

func parseCEL(expression string) (ast.Expr, error) {
	env, err := celParser()
	if err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nil, errors.New("a CEL expression is invalid")
	}
	return parsed.NativeRep().Expr(), nil
}

// generated returns the generate blocks of a ClusterPolicy for an item of spec.generate.
func (x celExpressions) generated(generate map[string]any) ([]map[string]any, error) {
	if generate["template"] != nil {
		object, err := x.template(generate)
		if err != nil {
			return nil, err
		}
		block, err := blockOf(object, "")
		return []map[string]any{block}, err
	}
	parsed, err := parseCEL(at[string](generate, "expression"))
	if err != nil {
		return nil, err
	}
	if parsed.Kind() != ast.CallKind || !strings.EqualFold(parsed.AsCall().FunctionName(), "apply") ||
		len(parsed.AsCall().Args()) != 2 { // Apply before Kyverno 1.18, and Get below
		return nil, errUnknownCEL
	}
	namespace, err := x.value(parsed.AsCall().Args()[0], 0)
	if err != nil {
		return nil, err
	}
	objects, err := x.objects(parsed.AsCall().Args()[1], 0)
	if err != nil {
		return nil, err
	}
	var blocks []map[string]any
	for _, object := range objects {
		block, err := blockOf(object, fmt.Sprint(namespace))
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// blockOf returns the generate block for an object. If namespace is "", it is that of the object.
func blockOf(object map[string]any, namespace string) (map[string]any, error) {
	if object["clone"] != nil {
		object["namespace"] = namespace
		return object, nil
	}
	if namespace == "" {
		namespace = at[string](object, "metadata", "namespace")
	}
	block := map[string]any{
		"apiVersion": object["apiVersion"], "kind": object["kind"], "name": at[string](object, "metadata", "name"),
		"namespace": namespace, "data": object,
	}
	if at[string](block, "kind") == "" || block["name"] == "" {
		return nil, errUnknownCEL
	}
	return block, nil
}

// embedded matches an expression in a string of a template in YAML.
var embedded = regexp.MustCompile(`\(\((.*?)\)\)`)

// template returns the object of a template in YAML whose strings have expressions.
func (x celExpressions) template(generate map[string]any) (map[string]any, error) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(at[string](generate, "template", "value")), &object); err != nil {
		return nil, errors.New("the template is not one object in YAML")
	}
	mapped, err := mapStrings(object, "", func(_, text string) (string, error) {
		if kyvernoVariable.MatchString(text) { // it is not a variable here
			return "", errUnknownCEL
		}
		var errs []error
		replaced := embedded.ReplaceAllStringFunc(text, func(match string) string {
			parsed, err := parseCEL(embedded.FindStringSubmatch(match)[1])
			if err != nil {
				errs = append(errs, err)
				return ""
			}
			value, err := x.value(parsed, 0)
			errs = append(errs, err)
			return fmt.Sprint(value)
		})
		return replaced, errors.Join(errs...)
	})
	fields, _ := mapped.(map[string]any)
	return fields, err
}

// errUnknownCEL is the reason why a CEL expression is not converted.
var errUnknownCEL = remedy{errors.New("a CEL expression computes a value: write the object into the template")}

// maxCEL is how deep an expression may be, with the variables in it.
const maxCEL = 32

// objects returns the objects in a list, in the notation of a ClusterPolicy. A copied object is a clone.
func (x celExpressions) objects(e ast.Expr, depth int) ([]map[string]any, error) {
	if variable, ok := x.variable(e); ok && depth < maxCEL {
		parsed, err := parseCEL(variable)
		if err != nil {
			return nil, err
		}
		return x.objects(parsed, depth+1)
	}
	switch {
	case depth >= maxCEL:
		return nil, errUnknownCEL
	case e.Kind() == ast.ListKind:
		var all []map[string]any
		for _, element := range e.AsList().Elements() {
			objects, err := x.objects(element, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, objects...)
		}
		return all, nil
	case e.Kind() == ast.CallKind && strings.EqualFold(e.AsCall().FunctionName(), "get"):
		source, err := x.source(e.AsCall().Args(), depth)
		return []map[string]any{source}, err
	}
	value, err := x.value(e, depth)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errUnknownCEL
	}
	return []map[string]any{object}, nil
}

// source returns the generate block that clones the object of resource.Get.
func (x celExpressions) source(args []ast.Expr, depth int) (map[string]any, error) {
	var words []string
	for _, arg := range args {
		value, err := x.value(arg, depth)
		if err != nil {
			return nil, err
		}
		words = append(words, fmt.Sprint(value))
	}
	if len(words) != 4 {
		return nil, errUnknownCEL
	}
	version, _ := schema.ParseGroupVersion(words[0])
	for kind := range scheme.Scheme.KnownTypes(version) {
		if plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind)); plural.Resource == words[1] {
			return map[string]any{
				"apiVersion": words[0], "kind": kind, "name": words[3],
				"clone": map[string]any{"namespace": words[2], "name": words[3]},
			}, nil
		}
	}
	return nil, remedy{fmt.Errorf("the kind of %s is unknown: list the object in spec.sources of a template", words[1])}
}

// variable returns the expression of a variable of the policy.
func (x celExpressions) variable(e ast.Expr) (string, bool) {
	name, found := strings.CutPrefix(pathOfCEL(e), "variables.")
	expression, ok := x[name]
	return expression, found && ok
}

// pathOfCEL returns the path of a selected field, such as object.metadata.name, or "".
func pathOfCEL(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		if selected := e.AsSelect(); !selected.IsTestOnly() {
			return pathOfCEL(selected.Operand()) + "." + selected.FieldName()
		}
	default:
	}
	return ""
}

// value returns the JSON value of an expression, with the variables of a ClusterPolicy in its strings.
func (x celExpressions) value(e ast.Expr, depth int) (any, error) {
	if depth++; depth > maxCEL {
		return nil, errUnknownCEL
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return literalOf(e)
	case ast.ListKind:
		list := []any{}
		for _, element := range e.AsList().Elements() {
			value, err := x.value(element, depth)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case ast.MapKind:
		return x.fields(e.AsMap(), depth)
	case ast.CallKind:
		return x.call(e.AsCall(), depth)
	default:
	}
	if variable, ok := x.variable(e); ok {
		parsed, err := parseCEL(variable)
		if err != nil {
			return nil, err
		}
		return x.value(parsed, depth)
	}
	if known := celVariables[pathOfCEL(e)]; known != "" {
		return known, nil
	}
	return nil, errUnknownCEL
}

// literalOf returns the value of a literal. Text that looks like a variable of a ClusterPolicy cannot be converted.
func literalOf(e ast.Expr) (any, error) {
	switch value := e.AsLiteral().Value().(type) {
	case string:
		if kyvernoVariable.MatchString(value) {
			return nil, errUnknownCEL
		}
		return value, nil
	case int64, float64, bool:
		return value, nil
	}
	return nil, errUnknownCEL
}

func (x celExpressions) fields(m ast.MapExpr, depth int) (any, error) {
	fields := map[string]any{}
	for _, entry := range m.Entries() {
		key, err := x.value(entry.AsMapEntry().Key(), depth)
		name, isText := key.(string)
		if err != nil || !isText || entry.AsMapEntry().IsOptional() {
			return nil, errUnknownCEL
		}
		if fields[name], err = x.value(entry.AsMapEntry().Value(), depth); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// call returns the value of a conversion, or of a sum of strings.
func (x celExpressions) call(call ast.CallExpr, depth int) (any, error) {
	var values []any
	for _, arg := range call.Args() {
		value, err := x.value(arg, depth)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	switch {
	case call.IsMemberFunction():
	case (call.FunctionName() == "dyn" || call.FunctionName() == "string") && len(values) == 1:
		return values[0], nil
	case call.FunctionName() == operators.Add && len(values) == 2:
		left, isLeft := values[0].(string)
		right, isRight := values[1].(string)
		if isLeft && isRight {
			return left + right, nil
		}
	}
	return nil, errUnknownCEL
}

// excludedNames returns the names of namespaces that a condition excludes. It returns an error for other conditions.
func excludedNames(expression string) ([]any, error) {
	parsed, err := parseCEL(expression)
	if err != nil || parsed.Kind() != ast.CallKind {
		return nil, errUnknownCEL
	}
	call := parsed.AsCall()
	isIn := false
	if call.FunctionName() == operators.LogicalNot && call.Args()[0].Kind() == ast.CallKind {
		call, isIn = call.Args()[0].AsCall(), true
	}
	if isIn != (call.FunctionName() == operators.In) || !isIn && call.FunctionName() != operators.NotEquals ||
		celVariables[pathOfCEL(call.Args()[0])] != triggeringName {
		return nil, errUnknownCEL
	}
	value, err := celExpressions{}.value(call.Args()[1], 0)
	if names, ok := value.([]any); ok && isIn {
		return names, err
	}
	return []any{value}, err
}
