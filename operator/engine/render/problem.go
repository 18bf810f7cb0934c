package render

import "strings"

// Problem is why a template cannot be populated.
type Problem struct {
	// Rule is the id of the violated rule, such as schema or size.
	Rule string
	// Path is the path of the field in the template, such as spec.templates[2].spec.hards, or "".
	Path string
	// Object is the declared object, such as resourcequota/budget, or "". Its name may contain tokens.
	Object string
	// Message says what is wrong.
	Message string
	// Remedy says what to do about it, or is "".
	Remedy string
}

// Error returns the problem as a sentence.
func (p Problem) Error() string {
	var parts []string
	for _, part := range []string{p.Path, p.Object, p.Message, p.Remedy} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}
