// Command language reports phrases that this project avoids, in the comments and strings of Go files, in Markdown, YAML
// and JSON, and in the comments of scripts. phrases.txt lists the phrases and what to write instead. Run it from the
// root folder of the repository.
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

// check returns the findings in all files below a folder. It skips hidden folders, the folders of built files, and this
// program's own folder, whose tests contain the phrases.
func check(root string) ([]finding, error) {
	phrases, err := parse(list)
	if err != nil {
		return nil, fmt.Errorf("phrases.txt: %w", err)
	}
	var findings []finding
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
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
		read, err := passages(file, content)
		if err != nil {
			return err
		}
		for _, passage := range read {
			findings = append(findings, phrases.find(file, passage)...)
		}
		return nil
	})
	slices.SortStableFunc(findings, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
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
