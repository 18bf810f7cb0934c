package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Every returns one match condition, which holds if all expressions are true. For each request, the API server
// evaluates all conditions of a webhook, even if the first does not hold, but of an expression only as much as it
// needs. So the first should be cheap, or true for few requests.
func Every(name string, expressions ...string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{
		Name: name, Expression: "(" + strings.Join(expressions, ") && (") + ")",
	}}
}
