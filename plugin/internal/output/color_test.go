package output

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func statuses() Table {
	return Table{
		Columns: []string{"Namespace", "Populated", "Reason"}, WideColumns: []string{"Message"},
		Rows: [][]string{
			{"False", "False", "ObjectsFailed", "False"}, {"a-long-name\x1b[31m", "True", "Populated", ""},
			{"b", "<none>", "", "x"}, {"c", "Unknown", "NotReported", "x"},
		},
	}
}

func TestColorsDoNotChangeTheAlignment(t *testing.T) {
	t.Parallel()
	for _, wide := range []bool{false, true} {
		for _, noHeaders := range []bool{false, true} {
			var plain, colored bytes.Buffer
			require.NoError(t, NewTableStream(&plain, wide, noHeaders).Print(statuses()))
			stream := NewTableStream(&colored, wide, noHeaders)
			stream.hasColor = true
			require.NoError(t, stream.Print(statuses()))
			text := colored.String()
			require.Contains(t, text, "\x1b[31mFalse\x1b[0m")
			require.Contains(t, text, "\x1b[32mTrue\x1b[0m")
			require.Contains(t, text, "\x1b[33mUnknown\x1b[0m")
			require.Contains(t, text, `a-long-name\x1b[31m`, "untrusted text stays escaped")
			for _, code := range []color{red, green, yellow, reset} {
				text = string(bytes.ReplaceAll([]byte(text), []byte(code), nil))
			}
			require.Equal(t, plain.String(), text)
		}
	}
}

func TestDiffWriterColorsLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writer := &diffWriter{w: &out, hasColor: true}
	for _, part := range []string{"--- a\n+++ b\n@@ -1 +1 @@\n-ol", "d\n+new\n same\n+last"} {
		_, err := io.WriteString(writer, part)
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	require.Equal(t, "--- a\n+++ b\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-old\x1b[0m\n\x1b[32m+new\x1b[0m\n same\n"+
		"\x1b[32m+last\x1b[0m", out.String())
}

func TestWriteSentence(t *testing.T) {
	t.Parallel()
	const long = "Warning: this sentence is longer than forty columns, and it has a word-that-is-not-broken-although-it-is-long"
	for name, test := range map[string]struct {
		text     string
		width    int
		hasColor bool
		want     string
	}{
		"in a pipe":            {long, 0, false, long},
		"on a narrow terminal": {long, 39, false, long},
		"on a terminal": {long, 40, false, "Warning: this sentence is longer than\n  forty columns, and it has a\n" +
			"  word-that-is-not-broken-although-it-is-long"},
		"with a color":   {"Warning: a", 80, true, "\x1b[33mWarning:\x1b[0m a"},
		"a note":         {"a Warning: b", 80, true, "a Warning: b"},
		"indented":       {"  - " + long[:43], 40, false, "  - Warning: this sentence is longer\n    than forty"},
		"as long as fit": {long[:40], 40, false, long[:40]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			writeSentence(&out, test.text, test.width, test.hasColor)
			require.Equal(t, test.want+"\n", out.String())
		})
	}
}
