package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/marks"
)

// test is a test function.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// testPackage is a package as go list prints it.
type testPackage struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// listPackages returns the packages that patterns name in a folder, as go test would.
func listPackages(ctx context.Context, dir string, patterns ...string) ([]testPackage, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles"},
		patterns...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var all []testPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p testPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p)
	}
}

// concurrency are the packages besides sync whose importers run something concurrently, or are called concurrently.
var concurrency = []string{"sync/atomic", "testing/synctest", "k8s.io/client-go/util/workqueue"}

// lazy are the functions of package sync that compute something when it is first used. By themselves, they run nothing
// concurrently.
var lazy = []string{"OnceFunc", "OnceValue", "OnceValues"}

// isConcurrent reports whether the race detector may find something in a package: it or its tests start goroutines, or
// use a package of concurrency.
func (p testPackage) isConcurrent() (bool, error) {
	for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		path := filepath.Join(p.Dir, file)
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		if isConcurrent(parsed) {
			return true, nil
		}
	}
	return false, nil
}

func isConcurrent(file *ast.File) bool {
	uses := map[string]bool{} // package sync is found by what the file uses of it
	for _, imported := range file.Imports {
		uses[strings.Trim(imported.Path.Value, `"`)] = true
	}
	found := slices.ContainsFunc(concurrency, func(path string) bool { return uses[path] })
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			from, _ := node.X.(*ast.Ident)
			isSync := from != nil && from.Name == "sync" && uses["sync"]
			found = found || isSync && !slices.Contains(lazy, node.Sel.Name)
		}
		return !found
	})
	return found
}

// scan returns the test functions of a package with their marks.
func scan(p testPackage) (map[test]marks.Mark, error) {
	found := map[test]marks.Mark{}
	for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		path := filepath.Join(p.Dir, file)
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if err := scanFile(parsed, p.ImportPath, found); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return found, nil
}

func scanFile(file *ast.File, pkg string, found map[test]marks.Mark) error {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		mark, err := markOf(function)
		if err != nil {
			return err
		}
		switch name := function.Name.Name; {
		case isTest(function):
			found[test{pkg, name}] = mark
		case mark != marks.Mark{}:
			return fmt.Errorf("%s is marked, and only a test can be: mark the tests that call it", name)
		}
	}
	return nil
}

// isTest reports whether go test calls a function.
func isTest(function *ast.FuncDecl) bool {
	rest, ok := strings.CutPrefix(function.Name.Name, "Test")
	return ok && function.Recv == nil && function.Name.Name != "TestMain" && len(function.Type.Params.List) == 1 &&
		(rest == "" || strings.ToLower(rest[:1]) != rest[:1])
}

// markOf returns the marks in a function. They are statements of the function itself and not of a block in it, so that
// they hold whenever it runs.
func markOf(function *ast.FuncDecl) (mark marks.Mark, err error) {
	direct := map[ast.Node]bool{}
	if function.Body == nil {
		return mark, nil
	}
	for _, statement := range function.Body.List {
		if expression, ok := statement.(*ast.ExprStmt); ok {
			direct[expression.X] = true
		}
	}
	ast.Inspect(function.Body, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if from, ok := selector.X.(*ast.Ident); !ok || from.Name != "marks" || selector.Sel.Name == "IsThorough" {
			return true
		}
		if !direct[call] {
			err = fmt.Errorf("marks.%s in %s is not a statement of the test itself", selector.Sel.Name, function.Name.Name)
			return false
		}
		err = errors.Join(err, set(&mark, selector.Sel.Name, call.Args))
		return true
	})
	return mark, err
}

func set(mark *marks.Mark, name string, args []ast.Expr) error {
	switch name {
	case "OnEveryVersion":
		mark.Since = "0.0"
	case "Since":
		version, ok := args[len(args)-1].(*ast.BasicLit)
		if !ok {
			return errors.New("the version of marks.Since is not a literal")
		}
		mark.Since = strings.Trim(version.Value, `"`)
	case "Thorough":
		mark.Thorough = true
	case "OnNode":
		mark.Node = true
	case "InBrowser":
		mark.InBrowser = true
	}
	return nil
}

// marksFile lists the marked tests, so that one that is renamed or deleted is noticed.
const marksFile = "test/marks/marks.txt"

const marksHeader = "# The marked tests. A test that is renamed, deleted or no longer marked must be so here, too: make generate.\n"

// listing returns the lines of marksFile, without its header.
func listing(all map[test]marks.Mark) []string {
	var lines []string
	for t, mark := range all {
		if text := mark.String(); text != "" {
			lines = append(lines, t.String()+" "+text)
		}
	}
	slices.Sort(lines)
	return lines
}

// scanAll returns the test functions of all modules with their marks.
func scanAll(ctx context.Context) (map[test]marks.Mark, error) {
	dirs, err := modules()
	if err != nil {
		return nil, err
	}
	all := map[test]marks.Mark{}
	for _, dir := range dirs {
		packages, err := listPackages(ctx, dir, "./...")
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			tests, err := scan(p)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, tests)
		}
	}
	return all, nil
}

func updateMarks(ctx context.Context) error {
	all, err := scanAll(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(marksFile, []byte(marksHeader+strings.Join(listing(all), "\n")+"\n"), 0o644)
}

func checkMarks(ctx context.Context) error {
	all, err := scanAll(ctx)
	if err != nil {
		return err
	}
	recorded, err := os.Open(marksFile)
	if err != nil {
		return err
	}
	defer recorded.Close()
	return errors.Join(compareMarks(recorded, listing(all)), checkTargets(ctx, all))
}

// compareMarks returns an error that names the tests whose marks differ from the recorded ones.
func compareMarks(recorded io.Reader, lines []string) error {
	inFile, inCode := map[string]bool{}, map[string]bool{}
	for scanner := bufio.NewScanner(recorded); scanner.Scan(); {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "#") {
			inFile[line] = true
		}
	}
	for _, line := range lines {
		inCode[line] = true
	}
	var problems []string
	for _, line := range slices.Sorted(maps.Keys(inFile)) {
		if !inCode[line] {
			problems = append(problems, "marked in "+marksFile+", but not in the code: "+line)
		}
	}
	for _, line := range lines {
		if !inFile[line] {
			problems = append(problems, "marked in the code, but not in "+marksFile+": "+line)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s\nif this is intended, run make generate", strings.Join(problems, "\n"))
	}
	return nil
}
