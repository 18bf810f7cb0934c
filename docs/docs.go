// Package docs holds the pages of the manual with the tables that the programs use too.
package docs

import (
	"embed"
	"strings"
)

//go:embed errors.md vet.md
var pages embed.FS

// Table returns the cells of a table of a page, without its header: the first table whose first column has the name.
// It panics if there is none.
func Table(page, column string) [][]string {
	content, err := pages.ReadFile(page)
	if err != nil {
		panic(err)
	}
	_, table, isFound := strings.Cut(string(content), "\n| "+column+" | ")
	if !isFound {
		panic(page + " has no table with the column " + column)
	}
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			break
		}
		rows = append(rows, strings.Split(strings.TrimSuffix(cells, " |"), " | "))
	}
	return rows
}
