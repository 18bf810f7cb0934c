// Command house counts the lines of each package of the product and keeps the counts in CONTRIBUTING.md, so that growth
// is seen. Its tests hold which packages may import which.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the module, and roots are the folders of its products.
const module = "nstpl.dev/nstpl/"

var roots = []string{"cmd", "docs", "operator", "plugin", "manifests", "krew"}

func main() {
	update := flag.Bool("update", false, "write the counts that have changed")
	flag.Parse()
	if err := run(".", *update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, update bool) error {
	found, err := readPackages(root)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "CONTRIBUTING.md")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	counted, err := withCounts(string(content), found)
	switch {
	case err != nil:
		return err
	case counted == string(content):
		return nil
	case update:
		return os.WriteFile(file, []byte(counted), 0o644)
	}
	return errors.New("the lines of packages in CONTRIBUTING.md are out of date: run make generate")
}

// goPackage is a package of the product.
type goPackage struct {
	// lines counts the lines of its files without tests and generated files.
	lines   int
	imports map[string]bool
}

// readPackages returns the packages of the product by their paths in the module.
func readPackages(root string) (map[string]*goPackage, error) {
	found := map[string]*goPackage{}
	for _, folder := range roots {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, entry fs.DirEntry, err error) error {
			name := entry.Name()
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") ||
				strings.HasPrefix(name, "zz_generated") {
				return err
			}
			relative, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			in := filepath.ToSlash(relative)
			if found[in] == nil {
				found[in] = &goPackage{imports: map[string]bool{}}
			}
			return found[in].read(file)
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p *goPackage) read(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p.lines += strings.Count(string(content), "\n")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, imported := range parsed.Imports {
		of, err := strconv.Unquote(imported.Path.Value)
		if err != nil {
			return err
		}
		p.imports[of] = true
	}
	return nil
}

// The counts are between these lines of CONTRIBUTING.md.
const (
	begin = "```text lines of packages\n"
	end   = "```\n"
)

// withCounts returns a document with the lines of each package. A count that is roughly right remains as it is, so that
// not every change changes the document.
func withCounts(document string, packages map[string]*goPackage) (string, error) {
	before, rest, hasBegin := strings.Cut(document, begin)
	written, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("CONTRIBUTING.md has no block that begins with %q", strings.TrimSpace(begin))
	}
	known := map[string]int{}
	for line := range strings.Lines(written) {
		if count, name, isRow := strings.Cut(strings.TrimSpace(line), " "); isRow {
			known[name], _ = strconv.Atoi(count) // a count that is not a number is wrong
		}
	}
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		lines := rounded(packages[name].lines)
		if is, isKnown := known[name]; isKnown && isRough(is, packages[name].lines) {
			lines = is
		}
		fmt.Fprintf(&rows, "%6d %s\n", lines, name)
	}
	return before + begin + rows.String() + end + after, nil
}

// rounded returns a number of lines as it is written: in tens, and at least 10.
func rounded(lines int) int { return max(10, (lines+5)/10*10) }

// isRough reports whether a written count is less than a tenth away from the lines, or less than 50 lines.
func isRough(written, lines int) bool {
	distance := max(written-lines, lines-written)
	return distance < 50 || distance*10 < lines
}

// isIn reports whether a package is in a folder.
func isIn(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, path.Clean(folder)+"/")
}
