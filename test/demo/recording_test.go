package main

import (
	"encoding/xml"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/page"
)

// The size of the recording's terminal in characters, and of a character in pixels.
const (
	columns    = 104
	charWidth  = 8
	lineHeight = 18
	margin     = 16
)

// recordingHead is the beginning of a recording. It moves once, and not for readers who prefer no motion.
const recordingHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}
.c{fill:#7ee787}
@keyframes show{from{opacity:0}to{opacity:1}}
@media (prefers-reduced-motion:no-preference){text{animation:show .1s both}}
</style>
<rect width="%[1]d" height="%[2]d" rx="8" fill="#0d1117"/>
`

// recording returns a picture of a terminal, as SVG, in which the commands of a page appear one after the other with
// their outputs.
func recording(title string, steps []page.Step) string {
	var lines strings.Builder
	y, at := margin, 0.5
	show := func(class, text string, pause float64) {
		for _, part := range fold(text) {
			y += lineHeight
			fmt.Fprintf(&lines, "<text x=\"%d\" y=\"%d\"%s style=\"animation-delay:%.1fs\">%s</text>\n", margin, y, class, at,
				html.EscapeString(part))
			at += pause
		}
	}
	for _, step := range steps {
		show(` class="c"`, "$ "+step.Command, 0.8)
		for line := range strings.Lines(step.Output) {
			show("", strings.TrimRight(line, "\n"), 0.15)
		}
		at += 1.2
	}
	width := columns*charWidth + 2*margin
	return fmt.Sprintf(recordingHead, width, y+margin, html.EscapeString(title)) + lines.String() + "</svg>\n"
}

// fold returns the lines of a terminal that a line takes.
func fold(text string) []string {
	var parts []string
	for runes := []rune(text); ; {
		if len(runes) <= columns {
			return append(parts, string(runes))
		}
		parts = append(parts, string(runes[:columns]))
		runes = runes[columns:]
	}
}

// recordingOf returns the recording of the README in the repository at root, and the path at which it is stored.
func recordingOf(t *testing.T, root string) (content, path string) {
	t.Helper()
	steps, err := page.Read(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	return recording("A terminal: the commands of the README with their outputs", steps),
		filepath.Join(root, "docs", "pictures", "terminal.svg")
}

// The recording in the README shows the commands and outputs of the README, which TestTour plays.
func TestRecording(t *testing.T) {
	t.Parallel()
	content, path := recordingOf(t, "../..")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	require.Equal(t, read(t, path), content, "run go test ./test/demo -run TestRecording -args -update")
	require.Less(t, len(content), 50_000)
	require.NoError(t, xml.Unmarshal([]byte(content), new(struct{})))
}

// The figures in the README are those of the page on performance.
func TestFigures(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "../../README.md"), "## How fast\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	manual := rows(read(t, "../../docs/performance.md"))
	figures := strings.Split(strings.TrimSpace(rows(section)), "\n")
	require.Greater(t, len(figures), 5)
	for _, figure := range figures {
		require.Contains(t, manual, figure+"\n")
	}
}
