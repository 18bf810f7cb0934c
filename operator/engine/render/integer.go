package render

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// maxExact is the greatest integer up to which float64 has all integers.
const maxExact = 1 << 53

// quotedIntegers has large integers pass through kustomize as strings: kustomize decodes the result of a JSON patch
// with float64 for all numbers. The mark begins these strings. It is the hash of all objects and patches, so none of
// them contains it, and unquote recognizes the strings. It is empty if there are no large integers.
type quotedIntegers struct{ mark string }

func newQuotedIntegers(kustomization types.Kustomization, objects []*unstructured.Unstructured) quotedIntegers {
	texts := sha256.New()
	isNeeded := false
	for _, patch := range kustomization.Patches {
		isNeeded = isNeeded || len(largeIntegersIn(patch.Patch)) > 0
		texts.Write([]byte(patch.Patch))
	}
	for _, object := range objects {
		isNeeded = isNeeded || hasLargeInteger(object.Object)
		if err := json.NewEncoder(texts).Encode(object.Object); err != nil {
			return quotedIntegers{} // cannot happen: the object was decoded from JSON
		}
	}
	if !isNeeded {
		return quotedIntegers{}
	}
	return quotedIntegers{fmt.Sprintf("integer-%x:", texts.Sum(nil))}
}

// largeIntegersIn returns the nodes of a patch that are large integers, in the order of the text.
func largeIntegersIn(patch string) (nodes []*yaml.Node) {
	decoder := yaml.NewDecoder(strings.NewReader(patch))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return nodes // the end, or an error that kustomize reports
		}
		nodes = append(nodes, largeIntegers(&document)...)
	}
}

func largeIntegers(node *yaml.Node) (nodes []*yaml.Node) {
	var number int64
	if node.Kind == yaml.ScalarNode && node.ShortTag() == yaml.NodeTagInt && node.Decode(&number) == nil &&
		isLarge(number) {
		return []*yaml.Node{node}
	}
	for _, child := range node.Content {
		nodes = append(nodes, largeIntegers(child)...)
	}
	return nodes
}

func isLarge(value any) bool {
	number, ok := value.(int64)
	return ok && (number > maxExact || number < -maxExact)
}

func hasLargeInteger(value any) bool {
	for inside := range within(value) {
		if isLarge(inside) {
			return true
		}
	}
	return false
}

// quotePatches returns patches with strings instead of large integers.
func (q quotedIntegers) quotePatches(patches []types.Patch) []types.Patch {
	quoted := slices.Clone(patches)
	for i := range quoted {
		quoted[i].Patch = q.quotePatch(quoted[i].Patch)
	}
	return quoted
}

// quotePatch changes nothing else in the text of a patch: kustomize reads keys such as n in its own way.
func (q quotedIntegers) quotePatch(patch string) string {
	nodes := largeIntegersIn(patch)
	lines := strings.Split(patch, "\n")
	for len(nodes) > 0 {
		number, count := nodes[0].Line, 1
		for count < len(nodes) && nodes[count].Line == number {
			count++
		}
		if number <= len(lines) {
			lines[number-1] = q.quoteLine(lines[number-1], nodes[:count])
		}
		nodes = nodes[count:]
	}
	return strings.Join(lines, "\n")
}

func (q quotedIntegers) quoteLine(line string, nodes []*yaml.Node) string {
	var quoted strings.Builder
	rest, column := []rune(line), 1
	for _, node := range nodes {
		before := node.Column - column
		after := before + len(node.Value)
		var number int64
		if before < 0 || after > len(rest) || string(rest[before:after]) != node.Value || node.Decode(&number) != nil {
			continue
		}
		fmt.Fprintf(&quoted, "%s%q", string(rest[:before]), fmt.Sprint(q.mark, number))
		rest, column = rest[after:], column+after
	}
	return quoted.String() + string(rest)
}

// quote returns a value with strings instead of large integers. It shares what has none.
func (q quotedIntegers) quote(value any) any {
	if q.mark == "" {
		return value
	}
	return replace(value, func(scalar any) any {
		if isLarge(scalar) {
			return fmt.Sprint(q.mark, scalar)
		}
		return scalar
	})
}

// unquote is the inverse of quote.
func (q quotedIntegers) unquote(value any) any {
	if q.mark == "" {
		return value
	}
	return replace(value, func(scalar any) any {
		text, _ := scalar.(string)
		if digits, ok := strings.CutPrefix(text, q.mark); ok {
			if number, err := strconv.ParseInt(digits, 10, 64); err == nil {
				return number
			}
		}
		return scalar
	})
}
