package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindReportsPhrasesInProse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file, content string
		want          []string
	}{
		"a Go comment": {
			"a.go", "package a\n\n// Fresh tells whether a is b.\nvar a = 1\n", []string{`a.go:3: "tells whether"`},
		},
		"across lines of comments": {
			"a.go", "package a\n\n// Fresh tells\n// whether a is b.\n", []string{`a.go:3: "tells whether"`},
		},
		"a comment within a line": {
			"a.go", "package a\n\nvar a = 1 // what is there\n", []string{`a.go:3: "what is there"`},
		},
		"a message": {
			"a.go", "package a\n\nvar a = \"it is no name\\n\"\n", []string{`a.go:3: "is no name"`},
		},
		"after an escape sequence": {
			"a.go", "package a\n\nvar a = \"a\\nnobody knows\"\n", []string{`a.go:3: "nobody"`},
		},
		"a raw string": {
			"a.go", "package a\n\nvar a = `a: b\n# somebody\n`\n", []string{`a.go:4: "somebody"`},
		},
		"an identifier":        {"a.go", "package a\n\nvar nobody = 1\n", nil},
		"a string of one word": {"a.go", "package a\n\nvar user = \"nobody\"\n", nil},
		"a part of a name":     {"a.go", "package a\n\nvar a = \"user nobody-else\" // x/nobodys\n", nil},
		"Markdown": {
			"a.md", "a\nWhoever writes,\nbooked `nobody`\n", []string{`a.md:2: "Whoever"`, `a.md:3: "booked"`},
		},
		"a code block": {
			"a.md", "```console\n$ kubectl get ns nobody\nnobody\n```\nnobody\n", []string{`a.md:5: "nobody"`},
		},
		"a comment in a block": {"a.md", "```yaml\na: b # put it right\n```\n", []string{`a.md:2: "put it right"`}},
		"YAML": {
			"a.yaml", "# What is\n# there.\nmessage: it is no name\n",
			[]string{`a.yaml:1: "What is there"`, `a.yaml:3: "is no name"`},
		},
		"a test script": {"a.txtar", "# by who may\nexec echo nobody\n", []string{`a.txtar:1: "by who"`}},
		"a Makefile": {
			"Makefile", "help: ## Look at again\n\techo nobody\n", []string{`Makefile:1: "Look at again"`},
		},
		"another file": {"a.txt", "nobody", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, test.file), []byte(test.content), 0o600))
			findings, err := check(folder)
			require.NoError(t, err)
			require.Len(t, findings, len(test.want), "%v", findings)
			for i, want := range test.want {
				require.Contains(t, findings[i].String(), want+": ")
			}
		})
	}
}

func TestListedPhrases(t *testing.T) {
	t.Parallel()
	phrases, err := parse(list)
	require.NoError(t, err)
	for text, want := range map[string]string{
		`"x" is no valid label`:                      "is no valid",
		"objects that are no part of it":             "are no part",
		"the template is no longer declared":         "",
		"there is no rule, and there are no objects": "",
		"it has no rules":                            "",
		"Who may use it is root on the nodes.":       "Who may use it is",
		"Who needs which verb, and why":              "",
		"a user who may create pods is told":         "",
		"Show who may use a constraint":              "",
		"The object is not there.":                   "",
		"Apply it where it is not there yet.":        "it is not there",
		"can't tell whether it exists":               "",
		"the tree has no longer a root":              "has no longer",
		"more than the quota lets in":                "lets in",
		"let initial namespaces be":                  "",
		"The operator puts it right.":                "puts it right",
		"wait until the namespace is looked at":      "is looked at",
		"Look at the namespace again.":               "",
		"by who could not have written it":           "by who",
		"a limit by which who wins is decided":       "",
		"no finalizer stands in the way":             "",
		"its name stands in the label":               "stands in the",
	} {
		var got []string
		for _, finding := range phrases.find("file", passage{1, text}) {
			got = append(got, finding.text)
		}
		require.Equal(t, want, strings.Join(got, ", "), text)
	}
}

func TestFindNamesReportsDeclaredNames(t *testing.T) {
	t.Parallel()
	names, err := parse(nameList)
	require.NoError(t, err)
	for content, want := range map[string]string{
		"func listByPlace() {}":                              "place in listByPlace",
		"func (a *b) TakeOne() {}":                           "take in TakeOne",
		"type SeenUID string":                                "seen in SeenUID",
		"type a struct { b struct { lookAt int } }":          "look in lookAt",
		"type a interface { Tell() }":                        "tell in Tell",
		"const sayHTTP, b = 1, 2":                            "say in sayHTTP",
		"var is_sure bool":                                   "sure in is_sure",
		"func a() { place, found := 1, 2; _ = found+place }": "",
		"func a(place int) { b.See(place); _ = c{Seen: 1} }": "",
		"func replacePlacement() {}":                         "",
		"var errNotFound = errors.New(``)":                   "",
		"func TestStandbyTakesOver() {}":                     "",
	} {
		findings, err := names.findNames("a.go", []byte("package a\n\n"+content))
		require.NoError(t, err)
		var got []string
		for _, finding := range findings {
			require.Equal(t, 3, finding.line)
			got = append(got, finding.text)
		}
		require.Equal(t, want, strings.Join(got, ", "), content)
	}
}

func TestWordsOfIdentifiers(t *testing.T) {
	t.Parallel()
	for identifier, want := range map[string]string{
		"": "", "a": "a", "listByUID": "list by uid", "UIDOf": "uid of", "HTTPServer": "http server",
		"is_sure": "is sure",
	} {
		require.Equal(t, want, words(identifier))
	}
}

// All names of this repository pass, so that go test finds a new one, too.
func TestNamesOfTheRepository(t *testing.T) {
	t.Parallel()
	findings, err := checkNames("../..")
	require.NoError(t, err)
	for _, finding := range findings {
		t.Error(finding)
	}
}

func TestParseRejectsInvalidLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"nobody":          `line 2: "nobody" must have the form`,
		"(nobody => user": "line 2: error parsing regexp",
		"! (there":        "line 2: error parsing regexp",
	} {
		_, err := parse("# comment\n" + line)
		require.ErrorContains(t, err, want)
	}
}
