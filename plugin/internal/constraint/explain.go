package constraint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// write prints the results in the requested format.
func (o *review) write(results []result) error {
	if o.output.Format != "" && o.output.Format != cli.FormatTable {
		return cli.PrintList(o.Session, &o.output, cli.Printed[result]{
			Kind: "ConstraintReviewList", Items: results,
			Name: func(r result) string { return r.Object },
		})
	}
	for i, reviewed := range results {
		if i > 0 {
			output.Line(o.Out, "")
		}
		if err := o.explain(reviewed); err != nil {
			return err
		}
	}
	return nil
}

// explain prints a result as text.
func (o *review) explain(reviewed result) error {
	switch {
	case reviewed.isTried && !reviewed.Allowed && reviewed.Reasons[0].Constraint == "":
		output.Line(o.Out, "%s is denied by the API server: %s", reviewed.Object, reviewed.Reasons[0].Message)
		return nil
	case reviewed.isTried && reviewed.Constraint == nil:
		output.Line(o.Out, "%s is admitted, and no constraints apply to it", reviewed.Object)
		return nil
	case !reviewed.Allowed:
		output.Line(o.Out, "%s is not admitted by any constraint:", reviewed.Object)
		table := output.Table{Columns: []string{"Constraint", "Field", "Message"}}
		for _, reason := range reviewed.Reasons {
			table.Rows = append(table.Rows, []string{reason.Constraint, cmp.Or(reason.Field, "-"), reason.Message})
		}
		return o.output.PrintTable(o.Out, table)
	case reviewed.Constraint == nil:
		output.Line(o.Out, "%s is admitted unchanged: constraints do not apply to namespace %s", reviewed.Object,
			reviewed.original.Namespace)
		return nil
	}
	output.Line(o.Out, "%s is admitted by %s, which the %s may use", reviewed.Object, *reviewed.Constraint,
		reviewed.user())
	sets, err := fieldsSet(reviewed.original, reviewed.Pod)
	if reviewed.isTried { // the other fields are defaults of the API server
		maps.DeleteFunc(sets, func(field, _ string) bool { return !strings.Contains(field, "ecurityContext.") })
	}
	if err != nil || len(sets) == 0 {
		return err
	}
	table := output.Table{Columns: []string{"Sets", "To"}}
	for _, field := range slices.Sorted(maps.Keys(sets)) {
		table.Rows = append(table.Rows, []string{field, sets[field]})
	}
	if err := o.output.PrintTable(o.Out, table); err != nil {
		return err
	}
	for _, reason := range reviewed.triedBefore {
		o.Note("tried before: %s", reason)
	}
	return nil
}

// user returns who may use the constraints that admit a pod.
func (r result) user() string {
	user := "controller that creates its pods"
	switch {
	case *r.Subject == scc.ServiceAccountSubject:
		return "service account"
	case strings.HasPrefix(r.Object, "pod/") || r.isTried:
		user = "user"
	}
	if r.isIntersection {
		return "service account and the " + user
	}
	return user
}

// fieldsSet returns the fields of a pod that the review set, with their values.
func fieldsSet(before, after *corev1.Pod) (map[string]string, error) {
	flatten := func(pod *corev1.Pod) (map[string]string, error) {
		flat := map[string]string{}
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
		flattenInto(flat, "spec", spec)
		return flat, err
	}
	old, errBefore := flatten(before)
	sets, errAfter := flatten(after)
	if err := errors.Join(errBefore, errAfter); err != nil {
		return nil, err
	}
	maps.DeleteFunc(sets, func(field, value string) bool { return old[field] == value })
	return sets, nil
}

// flattenInto adds the fields of a JSON value, with their paths as keys. A list of scalars is one field.
func flattenInto(into map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			flattenInto(into, path+"."+key, inner)
		}
	case []any:
		if len(value) > 0 {
			if _, objects := value[0].(map[string]any); objects {
				for i, inner := range value {
					flattenInto(into, fmt.Sprintf("%s[%d]", path, i), inner)
				}
				return
			}
		}
		data, _ := json.Marshal(value) // never fails, since the value was decoded from JSON
		into[path] = string(data)
	default:
		data, _ := json.Marshal(value)
		into[path] = strings.Trim(string(data), `"`)
	}
}
