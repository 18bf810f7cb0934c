package render

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/quantities"
)

// checkQuantities returns a problem for a quantity that the API server could only parse in much time and memory. The
// trial of the template would have it try, and so would each namespace.
func checkQuantities(object *unstructured.Unstructured) []Problem {
	found, isExcessive := errors.AsType[*quantities.ExcessiveError](quantities.CheckObject(object))
	if !isExcessive {
		return nil
	}
	return []Problem{{
		Rule: ruleSchema, Path: found.Field, Message: fmt.Sprintf("must be a quantity, not %.40q", found.Text),
		Remedy: quantities.Forms,
	}}
}
