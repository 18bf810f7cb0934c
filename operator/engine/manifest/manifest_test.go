package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/manifest"
)

// parse returns the documents of a text.
func parse(t *testing.T, text string) []manifest.Manifest {
	t.Helper()
	var parsed []manifest.Manifest
	for _, document := range manifest.Split(manifest.Normalize([]byte(text))) {
		one, err := document.Parse()
		require.NoError(t, err)
		parsed = append(parsed, one)
	}
	return parsed
}

func TestLinesOfFields(t *testing.T) {
	const text = `# comment
apiVersion: v1
metadata:
  labels:
    example.com/tier: gold
items:
- {a: 1}
- b:
    hard:
      requests.cpu: 1
base: &base
  deep:
    er: 1
merged:
  <<: *base
  own: 1
alias: *base
patch: |

  spec:
    hard:
      pods: 1
list: |
  - op: add
    path: /a
quoted: "spec:\n  hard: 1"
broken: |
  a: [
`
	tests := map[string]int{
		"":                                    2,
		"metadata.labels[example.com/tier]":   5,
		`metadata.labels["example.com/tier"]`: 5,
		"metadata.labels.example.com/tier":    5,
		"metadata.labels.absent":              4,
		"metadata.absent":                     3,
		"absent":                              2,
		"items[0].a":                          7,
		"items[1].b.hard.requests.cpu":        10,
		"items[1].b.hard[requests.cpu]":       10,
		"items[7]":                            6,
		"items.1.b":                           8,
		"merged.deep.er":                      13,
		"merged.own":                          16,
		"alias.deep":                          12,
		"patch":                               18,
		"patch.spec.hard.pods":                18,
		"items[1].b.hard.requests.cpu.more.of.it": 10,
		"items[-1]": 6,
		"metadata.labels[example.com/tier].absent": 5,
	}
	lines := parse(t, text)[0].Lines
	for field, want := range tests {
		require.Equal(t, want, lines.Of(manifest.SplitField(field)...), field)
	}
	texts := map[string]struct {
		inside string
		want   int
	}{
		"patch":    {"spec.hard.pods", 22},
		"list":     {"0.path", 25},
		"quoted":   {"spec.hard", 26},
		"broken":   {"a", 27},
		"metadata": {"labels", 3},
		"absent":   {"a", 2},
	}
	for field, test := range texts {
		require.Equal(t, test.want, lines.Text(field).Of(manifest.SplitField(test.inside)...), field)
	}
	require.Equal(t, 20, lines.Text("patch").Of("spec", "absent"))
	require.True(t, lines.Text("patch").Has("spec", "hard"))
	require.False(t, lines.Text("quoted").Has("spec", "hard"))
	later := parse(t, "a: b\n---\n"+text)[1].Lines
	require.Equal(t, 24, later.Text("patch").Of("spec", "hard", "pods"))
}

// A key can be as long as a file, and a text too. To search the line of a field must not take longer than to read the
// file: there can be a thousand such fields.
func TestTheSearchOfALineAllocatesNothing(t *testing.T) {
	lines := parse(t, "a: |\n"+strings.Repeat("  - b\n", 1000)+"c: d\n")[0].Lines
	for _, field := range []string{"a[0].b", "absent" + strings.Repeat(".a", 1000)} {
		path := manifest.SplitField(field)
		require.Zero(t, testing.AllocsPerRun(10, func() { lines.Of(path...) }), field[:6])
	}
}

// Keys are found as whole steps, the shortest one first.
func TestKeysWithDots(t *testing.T) {
	t.Parallel()
	lines := parse(t, `
base: &base
  x.y: 1
  x: {y: 2}
own:
  <<: *base
  x.y.z: 3
twice:
  a.b: 1
  a.b: 2
  a.b.c: 3
  a.: 4
`)[0].Lines
	for want, path := range map[int][]string{
		3:  {"base", "x.y"},
		4:  {"own", "x", "y"},
		7:  {"own", "x.y.z"},
		10: {"twice", "a", "b", "c"},
		11: {"twice", "a.b.c"},
		12: {"twice", "a", ""},
		8:  {"twice", "a.b.cd"},
	} {
		require.Equal(t, want, lines.Of(path...), path)
	}
}

func TestSplitFindsEveryDocument(t *testing.T) {
	tests := map[string]struct {
		text string
		// want has the line and the JSON of each document.
		want map[int]string
	}{
		"several":          {"a: 1\n---\n# only a comment\n---\nb: 2\n", map[int]string{1: `{"a":1}`, 5: `{"b":2}`}},
		"on the marker":    {"--- {a: 1}\n", map[int]string{1: `{"a":1}`}},
		"JSON values":      {"{\"a\": 1}\n\n{\"b\": 2}\n", map[int]string{1: `{"a": 1}`, 3: `{"b": 2}`}},
		"JSON, not YAML":   {"{\"a\":\t1}", map[int]string{1: "{\"a\":\t1}"}},
		"UTF-16":           {"\xff\xfea\x00:\x00 \x001\x00", map[int]string{1: `{"a":1}`}},
		"Windows":          {"\r\na: 1\r\n", map[int]string{2: `{"a":1}`}},
		"a comment":        {"# nothing\n", nil},
		"a text":           {"word\n", nil},
		"a list":           {"- a\n", nil},
		"an empty mapping": {"{}\n", map[int]string{1: "{}"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[int]string{}
			for _, one := range parse(t, test.text) {
				if one.JSON != nil {
					got[one.Of()] = string(one.JSON)
				}
			}
			if test.want == nil {
				test.want = map[int]string{}
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestDuplicateKeysAreReportedOnceEach(t *testing.T) {
	parsed := parse(t, "x: 1\n---\na: 1\nb: {c: 1, c: 2}\na: 2\na: 3\nd:\n  <<: {a: 1}\n  a: 2\n")[1]
	require.Equal(t, []manifest.Duplicate{{"c", 4, 4}, {"a", 5, 3}}, parsed.Duplicates)
	require.Contains(t, string(parsed.JSON), `"a":3`, "the last value counts, as for decoders")
	require.Equal(t, `duplicate key "a", which is also in line 3`, parsed.Duplicates[1].String())
	many := parse(t, "{"+strings.Repeat("\"a\": 1, ", 5000)+"\"a\": 1}")[0]
	require.Len(t, many.Duplicates, 1)
}

func TestSyntaxErrorsHaveTheLineInTheFile(t *testing.T) {
	tests := map[string]struct {
		text, reason string
		line         int
	}{
		"an open bracket":             {"a: b\n---\nc: [\n", "line 3: did not find", 3},
		"a tab":                       {"a:\n  b: c\n\td: e\n", "tab", 3},
		"an unknown anchor":           {"a: b\nc: *d\n", "unknown anchor 'd'", 2},
		"a control character":         {"a: b\nc: \x00\n", "control characters are not allowed", 2},
		"aliases that expand too far": {bomb(), "too large when its aliases are expanded", 1},
		"broken JSON":                 {"\n{\"a\": 1", "did not find expected", 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			documents := manifest.Split([]byte(test.text))
			_, err := documents[len(documents)-1].Parse()
			var syntax *manifest.SyntaxError
			require.ErrorAs(t, err, &syntax)
			require.ErrorContains(t, err, test.reason)
			require.Equal(t, test.line, syntax.Line)
		})
	}
}

// bomb returns a document whose aliases expand to gigabytes.
func bomb() string {
	var text strings.Builder
	text.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 10; i++ {
		at := string(rune('0' + i))
		text.WriteString("a" + at + ": &a" + at + " [" + strings.Repeat("*a"+string(rune('0'+i-1))+", ", 10) + "]\n")
	}
	return text.String()
}

// Splitting and parsing never panics, and every line is in the file.
func FuzzLines(f *testing.F) {
	f.Add("a: 1\n---\nb: |\n  c: 1\n", "b.c")
	f.Add(`{"a": [1]} {"b": 2}`, "a[0]")
	f.Add("a: &a\n  <<: *a\n", "a.b.c")
	f.Fuzz(func(t *testing.T, text, field string) {
		content := manifest.Normalize([]byte(text))
		last := strings.Count(string(content), "\n") + 1
		for _, document := range manifest.Split(content) {
			parsed, err := document.Parse()
			if err != nil {
				var syntax *manifest.SyntaxError
				require.ErrorAs(t, err, &syntax)
				require.LessOrEqual(t, syntax.Line, last)
				continue
			}
			path := manifest.SplitField(field)
			for _, at := range []int{parsed.Of(path...), parsed.Text(path...).Of("c")} {
				require.Positive(t, at)
				require.LessOrEqual(t, at, last)
			}
		}
	})
}

func TestLinesOfItems(t *testing.T) {
	t.Parallel()
	list := parse(t, "kind: List\nitems:\n- {a: 1}\n- b\n")[0].Lines
	without := parse(t, "kind: List\n")[0].Lines
	for text, lines := range map[string]manifest.Lines{"items": list, "none": without, "": {}} {
		items := lines.Items(3)
		require.Len(t, items, 3)
		want := []int{lines.Of(), lines.Of(), lines.Of()}
		if text == "items" {
			want = []int{3, 4, 1}
		}
		require.Equal(t, want, []int{items[0].Of(), items[1].Of(), items[2].Of()}, text)
	}
}
