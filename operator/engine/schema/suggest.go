package schema

import (
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// node is a schema of objects with a fixed set of fields.
type node struct {
	*structuralschema.Structural
}

// names returns the names of the fields in ascending order.
func (n node) names() []string {
	names := slices.Collect(maps.Keys(n.Properties))
	if n.XEmbeddedResource {
		names = append(names, "apiVersion", "kind", "metadata")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// child returns the schema of a field, or nil if the field has no fields of its own.
func (n node) child(name string) *node {
	property, ok := n.Properties[name]
	if !ok || property.Type != "object" || len(property.Properties) == 0 {
		return nil
	}
	return &node{&property}
}

// scope is an object in which a field is looked up, with the objects around it.
type scope struct {
	at    *field.Path
	node  *node
	outer *scope
}

const unknownField = "unknown field"

// maxListed is the number of fields that a message lists at most.
const maxListed = 12

// unknownField reports a field that the type of an object does not have. The remedy is, in this order: a field of the
// same name in another case, a field of that name around or below the object, and a field with a similar name.
func (c *checker) unknownField(in *scope, name string) {
	at := child(in.at, name)
	if c.unchecked(at, "the field") {
		return
	}
	names := in.node.names()
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		c.report(at, unknownField, "did you mean "+names[i]+"?")
		return
	}
	if elsewhere := in.find(name); elsewhere != "" {
		c.report(at, unknownField, "move it to "+elsewhere)
		return
	}
	if similar := Closest(name, names); similar != "" {
		c.report(at, unknownField, "did you mean "+similar+"?")
		return
	}
	for _, outer := range names {
		below := in.node.child(outer)
		if below == nil || outer == "metadata" || outer == "status" {
			continue
		}
		if similar := Closest(name, below.names()); similar != "" {
			c.report(at, unknownField, "did you mean "+in.at.Child(outer, similar).String()+"?")
			return
		}
	}
	remedy := "remove it"
	if len(names) > 0 && len(names) <= maxListed {
		remedy += ": only " + andList(names) + " are known here"
		if len(names) == 1 {
			remedy = "remove it: only " + names[0] + " is known here"
		}
	}
	c.report(at, unknownField, remedy)
}

// find returns the path of a field of that name in the objects around the scope, or up to two levels below it. It
// returns "" if there is none.
func (s *scope) find(name string) string {
	for outer := s.outer; outer != nil; outer = outer.outer {
		if slices.Contains(outer.node.names(), name) {
			return outer.at.Child(name).String()
		}
	}
	type position struct {
		at    *field.Path
		node  *node
		depth int
	}
	for queue := []position{{s.at, s.node, 0}}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		if here.depth > 0 && slices.Contains(here.node.names(), name) {
			return here.at.Child(name).String()
		}
		for _, below := range here.node.names() {
			if next := here.node.child(below); next != nil && here.depth < 2 && below != "status" {
				queue = append(queue, position{here.at.Child(below), next, here.depth + 1})
			}
		}
	}
	return ""
}

// child returns the path of a field. Names that would be ambiguous in a path are written in brackets.
func child(at *field.Path, name string) *field.Path {
	if name == "" || strings.ContainsAny(name, ".[]") {
		return at.Key(name)
	}
	return at.Child(name)
}

// Closest returns the candidate that is most similar to a word, or "" if none is similar.
func Closest(word string, candidates []string) string {
	best, bestDistance := "", 0
	for _, candidate := range candidates {
		distance := distanceOf(strings.ToLower(word), strings.ToLower(candidate))
		if distance > maxDistance(word, candidate) && !isPrefix(word, candidate) {
			continue
		}
		if best == "" || distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// Resembles reports whether a word is likely another word with typing errors or in another case.
func Resembles(word, meant string) bool {
	return distanceOf(strings.ToLower(word), strings.ToLower(meant)) <= len(meant)/4
}

// isPrefix reports whether one of two words is an abbreviation or an extension of the other.
func isPrefix(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(a) >= 3 && strings.HasPrefix(b, a) && len(b) <= 3*len(a)
}

// maxDistance returns the number of typing errors with which two words are still similar.
func maxDistance(a, b string) int {
	switch shorter := min(len(a), len(b)); {
	case shorter <= 2:
		return 0
	case shorter <= 5:
		return 1
	case shorter <= 8:
		return 2
	}
	return 3
}

// distanceOf returns the number of typing errors between two words: missing, additional, wrong and swapped characters.
func distanceOf(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

func orList(words []string) string  { return joinWords(words, "or") }
func andList(words []string) string { return joinWords(words, "and") }

// joinWords returns words as an enumeration, such as: a, b or c.
func joinWords(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + conjunction + " " + words[len(words)-1]
}
