package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The manuals name only targets that the Makefile has.
func TestTargetsOfMake(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	require.Contains(t, targets, "test-all")
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../test/faults/README.md") {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, target := range targetsIn(string(content)) {
			named++
			require.Contains(t, targets, target, "%s says: make %s", page, target)
		}
	}
	require.Greater(t, named, 20)
}

func TestTargetsInAPage(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{"a", "release", "b-2", "c", "d", "e"}, targetsIn(strings.Join([]string{
		"To make sure, run `make a`, or", "`make release VERSION=v1`, `K=1 make", "b-2 c`. `make X`, `make` and `remake z` name none.",
		"```text", "make d # make it so", "cmake y", "cd x && make e && ls", "  what would make your day", "```",
	}, "\n")))
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan  = regexp.MustCompile("`[^`]+`")
	// A call is at the beginning, also after variables, or follows another command.
	makeCall = regexp.MustCompile(`(?:^\$? *|&& |; )(?:[A-Z0-9_]+=\S* )*make((?:\s+[a-z][a-z0-9-]*\b|\s+[A-Z0-9_]+=\S*)+)`)
)

// targetsIn returns the targets in the calls of make that a page shows as code.
func targetsIn(page string) (targets []string) {
	var code []string
	prose := codeBlock.ReplaceAllStringFunc(page, func(block string) string {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			code = append(code, line)
		}
		return ""
	})
	for _, span := range codeSpan.FindAllString(prose, -1) {
		code = append(code, strings.Trim(span, "`"))
	}
	for _, text := range code {
		for _, call := range makeCall.FindAllStringSubmatch(text, -1) {
			targets = append(targets, slices.DeleteFunc(strings.Fields(call[1]), func(word string) bool {
				return strings.Contains(word, "=")
			})...)
		}
	}
	return targets
}
