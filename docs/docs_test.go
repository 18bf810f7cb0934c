package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		page, column string
		columns      int
		first        string
	}{
		{"errors.md", "code", 5, "`held`"},
		{"vet.md", "rule", 3, "`cycle`"},
	} {
		content, err := pages.ReadFile(test.page)
		require.NoError(t, err)
		_, table, _ := strings.Cut(string(content), "\n| "+test.column+" |")
		table, _, _ = strings.Cut(table, "\n\n")
		rows := Table(test.page, test.column)
		require.Len(t, rows, strings.Count(strings.TrimSpace(table), "\n")-1, "every line below the header is a row")
		require.Equal(t, test.first, rows[0][0])
		for _, row := range rows {
			require.Len(t, row, test.columns, "%v", row)
			for _, cell := range row {
				require.NotEmpty(t, cell)
				require.Equal(t, strings.TrimSpace(cell), cell)
				require.NotContains(t, cell, "|", "an escaped | would be shown with its backslash")
			}
		}
	}
	require.Panics(t, func() { Table("errors.md", "none") })
	require.Panics(t, func() { Table("none.md", "code") })
}
