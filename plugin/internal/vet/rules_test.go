package vet

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository.
const root = "../../.."

// The manual has every rule, and no other.
func TestRulesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/vet.md"))
	require.NoError(t, err)
	var documented []rule
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (.*) \\| (.*) \\|$").FindAllSubmatch(page, -1) {
		documented = append(documented, rule{string(row[1]), string(row[2]), string(row[3])})
	}
	want := slices.Clone(rules)
	slices.SortFunc(want, func(a, b rule) int { return strings.Compare(a.id, b.id) })
	for i := range want {
		want[i].meaning, want[i].remedy = inMarkdown(want[i].meaning), inMarkdown(want[i].remedy)
	}
	require.Equal(t, want, documented)
}

// inMarkdown returns a sentence with code in backticks.
func inMarkdown(text string) string {
	return regexp.MustCompile(`--server|\{\}|kubectl get|metadata\.namespace|scopeSelector|\buid\b`).
		ReplaceAllString(text, "`$0`")
}

// Every rule that the code names is in the list, and every rule in the list is in the code.
func TestRulesAreThoseOfTheCode(t *testing.T) {
	named := regexp.MustCompile(`(?:violate\(|\brule[A-Z][A-Za-z]* += )"([a-z-]+)"`)
	var found []string
	for _, dir := range []string{"operator/engine/hierarchy", "operator/engine/render", "plugin/internal/vet"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		before := len(found)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range named.FindAllSubmatch(source, -1) {
				found = append(found, string(match[1]))
			}
		}
		require.Greater(t, len(found), before, "no rule found in %s", dir)
	}
	var listed []string
	for _, rule := range rules {
		listed = append(listed, rule.id)
	}
	slices.Sort(found)
	slices.Sort(listed)
	require.Equal(t, slices.Compact(found), listed)
}
