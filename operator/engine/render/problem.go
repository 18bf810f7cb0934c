package render

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is why a template cannot be populated.
type Problem struct {
	// Rule is the id of the violated rule, such as schema or size.
	Rule string
	// Part is the object, source or overlay of the template that the problem is about.
	Part Part
	// Path is the path of the field in the template, such as spec.templates[2].spec.hards, or "".
	Path string
	// OverlayField is the path of a field of Object that an overlay makes invalid, or "". Path is then that of the
	// overlay, or of its patches.
	OverlayField string
	// Object is the declared object, such as resourcequota/budget, or "". Its name may contain tokens.
	Object string
	// Message says what is wrong.
	Message string
	// Remedy says what to do about it, or is "".
	Remedy string
	// Unchecked is true if the field was not checked: see schema.Problem.
	Unchecked bool
}

// Part is an object, a source or an overlay of a template. The zero value is the template as a whole.
type Part struct {
	List  List
	Index int
}

// List is a list of parts in a template.
type List int

// The lists, in their order in a template.
const (
	noList List = iota
	Objects
	Sources
	Overlays
)

// String returns the path of the part, such as spec.overlays[2], or "" for the template as a whole.
func (p Part) String() string {
	switch p.List {
	case Objects:
		return fmt.Sprintf("spec.templates[%d]", p.Index)
	case Sources:
		return fmt.Sprintf("spec.sources[%d]", p.Index)
	case Overlays:
		return fmt.Sprintf("spec.overlays[%d]", p.Index)
	case noList:
	}
	return ""
}

// The ids of rules.
const (
	ruleDuplicate      = "duplicate"
	ruleList           = "list"
	ruleName           = "name"
	ruleNamespace      = "namespace"
	ruleOverlay        = "overlay"
	ruleReservedKey    = "reserved-key"
	ruleSchema         = "schema"
	ruleScope          = "scope"
	ruleSelector       = "selector"
	ruleServerMetadata = "server-metadata"
	ruleSize           = "size"
	ruleSource         = "source"
	ruleToken          = "token"
	ruleVersion        = "version"
)

// IsAboutKind reports whether the problem is that no template can contain objects of the kind, which a cluster knows
// better.
func (p Problem) IsAboutKind() bool { return p.Rule == ruleVersion || p.Rule == ruleScope }

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

// under returns the problem of a value as that of an object that has the value at a path.
func (p Problem) under(at string) Problem {
	switch {
	case p.Path == "":
		p.Path = at
	case p.Path[0] == '[':
		p.Path = at + p.Path
	default:
		p.Path = at + "." + p.Path
	}
	return p
}

// in returns the problem of a part of a template as that of the template.
func (p Problem) in(part Part) Problem {
	p.Part = part
	return p.under(part.String())
}

// inOverlay returns the problem of an object as that of a field of an overlay, which makes the object so.
func (p Problem) inOverlay(part Part, field, name string) Problem {
	if p.Path != "" {
		p.OverlayField, p.Message = p.Path, p.Path+": "+p.Message
	}
	p.Path, p.Message = field, "overlay "+name+": "+p.Message
	return p.in(part)
}

// join returns an error that joins problems, or nil if there are none.
func join(problems []Problem) error {
	errs := make([]error, 0, len(problems))
	for _, problem := range problems {
		errs = append(errs, problem)
	}
	return errors.Join(errs...)
}

// problemsIn returns the problems that an error joins. Other errors, such as that of a canceled context, become
// problems with nothing but a message.
func problemsIn(err error) []Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []Problem
		for _, one := range joined.Unwrap() {
			all = append(all, problemsIn(one)...)
		}
		return all
	}
	if problem, ok := errors.AsType[Problem](err); ok {
		return []Problem{problem}
	}
	return []Problem{{Message: err.Error()}}
}
