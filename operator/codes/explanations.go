package codes

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/docs"
)

// Explanation explains a code in full sentences.
type Explanation struct {
	Code Code
	// Meaning is what the code says about a request.
	Meaning string
	// DecidedBy is the part of nstpl that denied or delayed the request.
	DecidedBy string
	// User and Administrator are what they can do about it.
	User, Administrator string
}

// Explain returns the explanation of a code. It reports false if the code is unknown.
func Explain(code Code) (Explanation, bool) {
	all := All()
	i := slices.IndexFunc(all, func(e Explanation) bool { return e.Code == code })
	if i < 0 {
		return Explanation{}, false
	}
	return all[i], true
}

// All returns the explanations of all codes: the rows of the table in docs/errors.md, with commands in quotes instead
// of backticks. It reads the table in each call, so that programs that explain nothing do not contain it.
func All() []Explanation {
	var all []Explanation
	quote := func(text string) string { return strings.ReplaceAll(text, "`", "'") }
	for _, row := range docs.Table("errors.md", "code") {
		all = append(all, Explanation{
			Code: Code(strings.Trim(row[0], "`")), Meaning: quote(row[1]), User: quote(row[2]),
			Administrator: quote(row[3]), DecidedBy: quote(row[4]),
		})
	}
	return all
}
