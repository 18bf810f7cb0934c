package codes_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/codes"
)

func TestFind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []codes.Code
	}{
		"no code":      {"pods \"web\" is forbidden: exceeded quota: budget", nil},
		"at the end":   {codes.Held.AddTo("namespace a is being initialized"), []codes.Code{codes.Held}},
		"quoted":       {"a (nstpl:quota-exceeded): b (nstpl:population-failed)", []codes.Code{"population-failed", "quota-exceeded"}},
		"twice":        {"a (nstpl:held)\nb (nstpl:held)", []codes.Code{codes.Held}},
		"unknown code": {"a (nstpl:new-in-a-later-version)", []codes.Code{"new-in-a-later-version"}},
		"not a code":   {"(nstpl:) (nstpl:Held) nstpl:held (nstpl:-held)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, codes.Find(test.text))
		})
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	require.Equal(t, "no (nstpl:held) way", codes.Trim("no (nstpl:held) way (nstpl:opt-out)\n"))
	require.Equal(t, "no", codes.Trim("no"))
}

func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	require.NoError(t, err)
	declared := map[codes.Code]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		if kind, isNamed := spec.Type.(*ast.Ident); isNamed && kind.Name == "Code" {
			value, _ := spec.Values[0].(*ast.BasicLit)
			declared[codes.Code(strings.Trim(value.Value, `"`))] = true
		}
		return true
	})
	require.Len(t, declared, len(codes.All()))
	for _, e := range codes.All() {
		require.True(t, declared[e.Code], "%s is not a constant", e.Code)
		require.Equal(t, []codes.Code{e.Code}, codes.Find(e.Code.AddTo("no")))
		for _, text := range []string{e.Meaning, e.User, e.Administrator} {
			require.Regexp(t, `^[A-Z].*\.$`, text, e.Code)
		}
		require.NotEmpty(t, e.DecidedBy, e.Code)
		found, isKnown := codes.Explain(e.Code)
		require.True(t, isKnown)
		require.Equal(t, e, found)
	}
	_, isKnown := codes.Explain("unknown")
	require.False(t, isKnown)
}
