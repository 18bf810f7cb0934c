package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both decode numbers into any as float64, which has 53 bits for integers: an object read with them would be another
// object. k8s.io/apimachinery/pkg/util/json and util/yaml keep integers.
var roundingDecoders = []string{
	"encoding/json.Unmarshal", "sigs.k8s.io/yaml.Unmarshal", "sigs.k8s.io/yaml.UnmarshalStrict",
}

func TestNoDecoderRoundsIntegers(t *testing.T) {
	t.Parallel()
	packages := listedPackages(t, "../..", "./operator/...", "./plugin/...", "./cmd/...", "./manifests/...",
		"./krew/...")
	found, err := roundedIntegers(packages)
	require.NoError(t, err)
	require.Empty(t, found, "decode with k8s.io/apimachinery/pkg/util/json or util/yaml, which keep integers")
}

func TestRoundedIntegersFindsDecodersIntoAny(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "a.go")
	require.NoError(t, os.WriteFile(file, []byte(`package a

import (
	"encoding/json"
	"strings"
)

type mixed struct {
	Raw  json.RawMessage
	Deep []struct{ Fields map[string]any }
}

func decode(data []byte) {
	var value any
	_ = json.Unmarshal(data, &value)
	_ = json.Unmarshal(data, &mixed{})
	_ = json.NewDecoder(strings.NewReader("")).Decode(&value)
	exact := json.NewDecoder(strings.NewReader(""))
	exact.UseNumber()
	_ = exact.Decode(&value)
	_ = json.Unmarshal(data, &map[string]json.RawMessage{})
	_ = json.Unmarshal(data, &struct{ A int64 }{})
}
`), 0o600))
	packages := listedPackages(t, "../..", "encoding/json", "strings")
	for i := range packages {
		packages[i].DepOnly = true
	}
	found, err := roundedIntegers(append(packages,
		listedPackage{ImportPath: "a", Dir: folder, GoFiles: []string{"a.go"}}))
	require.NoError(t, err)
	require.Equal(t, []string{file + ":15", file + ":16", file + ":17"}, found)
}

// listedPackage is a package as go list prints it. Export is the file with its types.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

func listedPackages(t *testing.T, folder string, patterns ...string) (packages []listedPackage) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	command.Dir, command.Stderr = folder, os.Stderr
	output, err := command.Output()
	require.NoError(t, err)
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var listed listedPackage
		err := decoder.Decode(&listed)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, listed)
	}
}

// roundedIntegers returns the file and line of each call in packages that decodes numbers into any as float64.
func roundedIntegers(packages []listedPackage) (found []string, err error) {
	exports := map[string]string{}
	for _, listed := range packages {
		exports[listed.ImportPath] = listed.Export
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, listed := range packages {
		if listed.DepOnly {
			continue
		}
		var parsed []*ast.File
		for _, name := range listed.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(listed.Dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			parsed = append(parsed, file)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: imports}).Check(listed.ImportPath, files, parsed, info); err != nil {
			return nil, fmt.Errorf("%s: %w", listed.ImportPath, err)
		}
		for _, file := range parsed {
			for _, declaration := range file.Decls {
				for _, at := range roundedIn(declaration, info) {
					position := files.Position(at)
					found = append(found, fmt.Sprintf("%s:%d", position.Filename, position.Line))
				}
			}
		}
	}
	return found, nil
}

func roundedIn(declaration ast.Decl, info *types.Info) (found []token.Pos) {
	usesNumber := false
	ast.Inspect(declaration, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			usesNumber = usesNumber || ok && calledBy(call, info) == "(*encoding/json.Decoder).UseNumber"
			return true
		}
		name := calledBy(call, info)
		rounds := slices.Contains(roundingDecoders, name) || name == "(*encoding/json.Decoder).Decode" && !usesNumber
		into := info.TypeOf(call.Args[min(1, len(call.Args)-1)])
		if rounds && !types.IsInterface(into) && holdsAny(into, nil) { // an interface holds a pointer of an unknown type
			found = append(found, call.Pos())
		}
		return true
	})
	return found
}

// calledBy returns the full name of the function that a call calls, or "".
func calledBy(call *ast.CallExpr, info *types.Info) string {
	selected, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	function, ok := info.Uses[selected.Sel].(*types.Func)
	if !ok {
		return ""
	}
	return function.FullName()
}

// holdsAny reports whether a value of a type has fields or items of type any that a decoder fills.
func holdsAny(t types.Type, seen []types.Type) bool {
	if slices.Contains(seen, t) {
		return false
	}
	seen = append(seen, t)
	if method, _, _ := types.LookupFieldOrMethod(t, true, nil, "UnmarshalJSON"); method != nil {
		return false
	}
	switch under := t.Underlying().(type) {
	case *types.Interface:
		return under.NumMethods() == 0
	case *types.Pointer:
		return holdsAny(under.Elem(), seen)
	case *types.Slice:
		return holdsAny(under.Elem(), seen)
	case *types.Array:
		return holdsAny(under.Elem(), seen)
	case *types.Map:
		return holdsAny(under.Elem(), seen)
	case *types.Struct:
		for field := range under.Fields() {
			if field.Exported() && holdsAny(field.Type(), seen) {
				return true
			}
		}
	}
	return false
}
