// Command language reports phrases that this project avoids, in the comments and strings of Go files, in Markdown, YAML
// and JSON, and in the comments of scripts. phrases.txt lists the phrases and what to write instead. It also reports
// names in Go files with words that this project avoids in names, which names.txt lists. Run it from the root folder of
// the repository.
package main

import (
	"cmp"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed phrases.txt
var list string

func main() {
	count := flag.Bool("count", false, "print the number of findings per folder instead of the findings")
	flag.Parse()
	findings, err := check(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	if *count {
		printCounts(os.Stdout, findings)
	} else {
		for _, finding := range findings {
			fmt.Fprintln(os.Stdout, finding)
		}
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// check returns the findings in all files below a folder.
func check(root string) ([]finding, error) {
	phrases, err := parse(list)
	if err != nil {
		return nil, fmt.Errorf("phrases.txt: %w", err)
	}
	findings, err := walk(root, func(file string, content []byte) (found []finding, err error) {
		read, err := passages(file, content)
		for _, passage := range read {
			found = append(found, phrases.find(file, passage)...)
		}
		return found, err
	})
	if err != nil {
		return nil, err
	}
	inNames, err := checkNames(root)
	return slices.SortedStableFunc(slices.Values(slices.Concat(findings, inNames)), func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
	}), err
}

// checkNames returns the findings in the names of all Go files below a folder.
func checkNames(root string) ([]finding, error) {
	names, err := parse(nameList)
	if err != nil {
		return nil, fmt.Errorf("names.txt: %w", err)
	}
	return walk(root, func(file string, content []byte) ([]finding, error) {
		if filepath.Ext(file) != ".go" {
			return nil, nil
		}
		return names.findNames(file, content)
	})
}

// walk returns what find returns for each file below a folder. It skips hidden folders, the folders of built files, and
// this program's own folder, whose tests contain the phrases.
func walk(root string, find func(file string, content []byte) ([]finding, error)) ([]finding, error) {
	var findings []finding
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && file != "."
			if hidden || slices.Contains([]string{"bin", "dist", "test/language"}, file) {
				return fs.SkipDir
			}
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := find(file, content)
		findings = append(findings, found...)
		return err
	})
	return findings, err
}

// printCounts prints the number of findings in each folder.
func printCounts(w io.Writer, findings []finding) {
	counts := map[string]int{}
	for _, finding := range findings {
		counts[filepath.ToSlash(filepath.Dir(finding.file))]++
	}
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "%6d %s\n", counts[folder], folder)
	}
	fmt.Fprintf(w, "%6d in total\n", len(findings))
}
