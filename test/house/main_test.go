package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors are the packages from the ground up. A package may import those of its own floor and of the floors below.
var floors = [][]string{
	{"docs", "operator/api", "operator/codes", "operator/freshness", "operator/internal/patch", "operator/version"},
	{"operator/attributes", "operator/quota", "operator/scc", "operator/selfservice"},
	{"operator/engine"},
	{"operator/internal", "manifests"},
	{"operator", "plugin"},
	{"cmd", "krew"},
}

// forbidden are imports that the floors allow, from folders, with the reason. Those of except are allowed.
var forbidden = []struct {
	from, imports, reason string
	except                []string
}{
	{
		"operator/engine", "k8s.io/client-go", "only populate writes to the API server",
		[]string{"operator/engine/populate", "k8s.io/client-go/kubernetes/scheme"},
	},
	{"operator/engine", "sigs.k8s.io/controller-runtime", "decisions are functions of values", nil},
	{"operator/internal/population", "operator/internal/attribute", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/constraint", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/openreports", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/policyspace", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/repository", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/selection", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/selfservice", "features register in operator/chain.go", nil},
	{"operator/internal/population", "operator/internal/vetting", "features register in operator/chain.go", nil},
	{"cmd/kubectl-nstpl", "operator", "the plugin does not contain the operator", nil},
	{"operator", "plugin", "the plugin imports the engine of the operator, and not the other way round", nil},
	{"", "k8s.io/apimachinery/pkg/util/resourceversion", "compare resourceVersions with operator/freshness", []string{
		"operator/freshness",
	}},
}

// floorOf returns the floor of a package: that of the longest folder.
func floorOf(name string) int {
	found, longest := -1, -1
	for at, folders := range floors {
		for _, folder := range folders {
			if isIn(name, folder) && len(folder) > longest {
				found, longest = at, len(folder)
			}
		}
	}
	return found
}

// violations returns the imports that are against the rules, and why.
func violations(packages map[string]*goPackage) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		for _, full := range slices.Sorted(maps.Keys(packages[name].imports)) {
			imported := strings.TrimPrefix(full, module)
			if imported != full && floorOf(imported) > floorOf(name) {
				found = append(found, fmt.Sprintf("%s imports %s, which is on a higher floor", name, imported))
			}
			for _, rule := range forbidden {
				isExcepted := slices.ContainsFunc(rule.except, func(folder string) bool {
					return isIn(name, folder) || isIn(imported, folder)
				})
				if (rule.from == "" || isIn(name, rule.from)) && isIn(imported, rule.imports) && !isExcepted {
					found = append(found, fmt.Sprintf("%s imports %s: %s", name, imported, rule.reason))
				}
			}
		}
	}
	return found
}

func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	t.Parallel()
	packages, err := readPackages("../..")
	require.NoError(t, err)
	for name := range packages {
		require.NotEqual(t, -1, floorOf(name), "package %s has no floor: add it to floors", name)
	}
	require.Empty(t, violations(packages))
}

func TestViolationsAreReported(t *testing.T) {
	t.Parallel()
	importing := func(imports ...string) *goPackage {
		p := &goPackage{imports: map[string]bool{}}
		for _, imported := range imports {
			p.imports[imported] = true
		}
		return p
	}
	found := violations(map[string]*goPackage{
		"operator/engine/match":        importing("k8s.io/client-go/rest", module+"operator/internal/queue", "fmt"),
		"operator/engine/populate":     importing("k8s.io/client-go/metadata"),
		"operator/engine/schema":       importing("k8s.io/client-go/kubernetes/scheme"),
		"operator/freshness":           importing("k8s.io/apimachinery/pkg/util/resourceversion"),
		"operator/internal/population": importing(module + "operator/internal/vetting"),
		"plugin/internal/sync":         importing("k8s.io/apimachinery/pkg/util/resourceversion"),
	})
	require.Equal(t, []string{
		"operator/engine/match imports k8s.io/client-go/rest: only populate writes to the API server",
		"operator/engine/match imports operator/internal/queue, which is on a higher floor",
		"operator/internal/population imports operator/internal/vetting: features register in operator/chain.go",
		"plugin/internal/sync imports k8s.io/apimachinery/pkg/util/resourceversion: compare resourceVersions with operator/freshness",
	}, found)
}

func TestCountsThatAreRoughlyRightRemain(t *testing.T) {
	t.Parallel()
	document := "# A map\n" + begin + "  1000 operator/a\n   120 operator/b\n    70 operator/gone\n" + end + "more\n"
	counted, err := withCounts(document, map[string]*goPackage{
		"operator/a": {lines: 1090}, "operator/b": {lines: 170}, "operator/c": {lines: 3},
	})
	require.NoError(t, err)
	require.Equal(t, "# A map\n"+begin+"  1000 operator/a\n   170 operator/b\n    10 operator/c\n"+end+"more\n", counted)
	_, err = withCounts("# A map\n", nil)
	require.ErrorContains(t, err, "no block")
}
