package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkID matches the names of checks in the code of this package.
var checkID = regexp.MustCompile(`(?:[Cc]heck: |const id = |add\(|unread\()"([a-z]+(?:-[a-z]+)*)"`)

// TestManual compares the checks with those for which the table of the manual says what to do.
func TestManual(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var checks, documented []string
	for _, resource := range ownResources {
		checks = append(checks, resource.Resource)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range checkID.FindAllStringSubmatch(string(code), -1) {
			checks = append(checks, match[1])
		}
	}
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	_, table, isFound := strings.Cut(string(page), "\n| a check fails or warns | see |\n|---|---|\n")
	require.True(t, isFound)
	for line := range strings.SplitSeq(table, "\n") {
		names, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			break
		}
		names, _, _ = strings.Cut(names, " | ")
		documented = append(documented, strings.Split(names, ", ")...)
	}
	slices.Sort(checks)
	require.ElementsMatch(t, slices.Compact(checks), documented)
}
