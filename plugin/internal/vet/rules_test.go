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
	for _, rule := range rules() {
		listed = append(listed, rule.id)
	}
	slices.Sort(found)
	slices.Sort(listed)
	require.Equal(t, slices.Compact(found), listed)
}
