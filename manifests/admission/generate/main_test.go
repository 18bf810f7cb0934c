package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/engine/match"
)

func TestGeneratedPoliciesAreUpToDate(t *testing.T) {
	t.Parallel()
	files, err := render()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is stale: run make generate", name)
	}
}

// An expression that is written by hand in a policy could differ from the generated ones.
func TestSharedExpressionsAreOnlyGenerated(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("policies/*.yaml.tmpl")
	require.NoError(t, err)
	policies, err := filepath.Glob("../*.yaml")
	require.NoError(t, err)
	generated, err := render()
	require.NoError(t, err)
	for _, policy := range policies {
		if _, ok := generated[filepath.Base(policy)]; !ok {
			sources = append(sources, policy)
		}
	}
	require.Greater(t, len(sources), len(generated))
	for _, source := range sources {
		content, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, shared := range []string{"word.contains", "'kube-public'", "params.?data", "m.?manager"} {
			require.NotContains(t, string(content), shared, "%s: call a function of cel.go instead", source)
		}
	}
}

// The API server evaluates all conditions of a policy for each request, even if the first does not hold. The second one
// of nstpl-template-use therefore begins with what costs little.
func TestPoliciesHaveAtMostOneCondition(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*.yaml")
	require.NoError(t, err)
	policies := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var policy struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ MatchConditions []any }
			}
			require.NoError(t, yaml.Unmarshal([]byte(document), &policy), file)
			if strings.HasSuffix(policy.Kind, "AdmissionPolicy") && policy.Metadata.Name != "nstpl-template-use" {
				policies++
				require.LessOrEqual(t, len(policy.Spec.MatchConditions), 1, file)
			}
		}
	}
	require.Positive(t, policies)
}

func TestSystemNamespacesAreThoseOfTheOperator(t *testing.T) {
	t.Parallel()
	names := strings.Split(strings.Trim(systemNamespaces(), "[]"), ", ")
	require.Len(t, names, 5)
	for _, name := range names {
		require.True(t, match.IsSystemNamespace(strings.Trim(name, "'")), name)
	}
}

// The policy would let users change a record that it does not name.
func TestNamespaceRecordsAreThoseOfTheOperator(t *testing.T) {
	t.Parallel()
	keys, err := os.ReadFile("../../../operator/api/v1alpha1/keys.go")
	require.NoError(t, err)
	records := regexp.MustCompile(`"policy\.nstpl\.dev/scc\.[^"]+"`).FindAllString(string(keys), -1)
	require.NotEmpty(t, records)
	for _, record := range records {
		require.Contains(t, namespaceRecords(), strings.ReplaceAll(record, `"`, "'"))
	}
}

func TestExpressionsHaveNoPlaceholders(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		selects("r", "is"), hasRule("is", "r != 'x'"), selectingRules("is", "r != 'x'"), ruleLists("is"),
	} {
		require.NotRegexp(t, "[A-Z]{4}", expression)
		require.Contains(t, expression, "is")
		require.Equal(t, strings.Count(expression, "("), strings.Count(expression, ")"))
	}
}

func TestOnlyRemovesFields(t *testing.T) {
	t.Parallel()
	expression := onlyRemovesFields("was", "is")
	require.True(t,
		strings.HasPrefix(expression, "[[is, was]].all(\np0, size(p0[0]) > 0 && p0[0].all(k0, k0 in p0[1] && ("))
	require.Len(t, strings.Split(expression, "\n"), 1+fieldLevels)
	require.Contains(t, expression,
		"\np19, size(p19[0]) > 0 && p19[0].all(k19, k19 in p19[1] && p19[0][k19] == p19[1][k19])")
	require.Equal(t, strings.Count(expression, "("), strings.Count(expression, ")"))
}
