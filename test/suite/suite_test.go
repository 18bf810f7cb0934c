package main

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/marks"
)

// writeModule makes a module of a text with a section for each file the current folder.
func writeModule(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":         "module example.org/m\n\ngo 1.26.0\n",
		"marks/marks.go": "package marks\n\nfunc Thorough(any) {}\n\nfunc OnEveryVersion(any) {}\n\nfunc Since(any, string) {}\n",
		"a/a_test.go":    "package a\n\nimport (\n\t\"testing\"\n\n\t\"example.org/m/marks\"\n)\n\nvar _ = marks.Thorough\n\n" + text,
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	t.Chdir(dir)
}

func TestRunTests(t *testing.T) {
	const module = `
func TestQuick(t *testing.T) {}

func TestEvery(t *testing.T) { marks.OnEveryVersion(t) }

func TestNew(t *testing.T) { marks.Since(t, "1.36") }

func TestLong(t *testing.T) { marks.Thorough(t) }
`
	for name, test := range map[string]struct{ run, module, want, problem string }{
		"quick":             {run: "quick", module: module, want: "run quick: 3 of 3 tests passed"},
		"race":              {run: "race", module: module, problem: "no test belongs to the run race"},
		"race, concurrent":  {run: "race", module: module + "\nfunc begin() { go func() {}() }", want: "run race: 3 of 3 tests passed"},
		"thorough":          {run: "thorough", module: module, want: "run thorough: 1 of 1 tests passed"},
		"an older version":  {run: "1.35.4", module: module, want: "run 1.35.4: 1 of 1 tests passed"},
		"a newer version":   {run: "1.37.2", module: module, want: "run 1.37.2: 2 of 2 tests passed"},
		"no test of a run":  {run: "node", module: module, problem: "no test belongs to the run node"},
		"an unknown run":    {run: "slow", module: module, problem: `"slow" is not a run`},
		"a failure":         {run: "quick", module: "func TestA(t *testing.T) { t.Error(\"wrong\") }", want: "wrong", problem: "go test"},
		"a mistake in code": {run: "quick", module: "func TestA(t *testing.T) { wrong() }", want: "undefined: wrong", problem: "go test"},
		"a skipped test": {
			run: "1.35.4", module: "func TestA(t *testing.T) { marks.OnEveryVersion(t); t.Skip(\"later\") }",
			problem: "TestA was skipped: later",
		},
		"a skipped subtest": {
			run:     "quick",
			module:  "func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { t.Skip(\"later\") }) }",
			problem: "TestA/b was skipped",
		},
		"a machine that lacks something": {
			run: "quick", module: "func TestA(t *testing.T) { t.Skip(\"NOT RUN: no browser\") }",
			want: "run quick: 0 of 1 tests passed",
		},
		"a test that ends the process": {
			run: "quick", module: "func TestA(t *testing.T) { println(\"gone\") }\n\nfunc TestB(t *testing.T) { panic(\"end\") }",
			want: "end", problem: "go test",
		},
	} {
		t.Run(name, func(t *testing.T) {
			writeModule(t, test.module)
			t.Setenv(resultsVariable, filepath.Join(t.TempDir(), "results"))
			var out bytes.Buffer
			err := runTests(t.Context(), newTestRun(test.run, []string{"-count=1", "./..."}, &out))
			if test.problem == "" {
				require.NoError(t, err, out.String())
			} else {
				require.ErrorContains(t, err, test.problem)
			}
			require.Contains(t, out.String(), test.want)
		})
	}
}

func TestIsConcurrent(t *testing.T) {
	for code, want := range map[string]bool{
		"func begin() { go begin() }":                                                 true,
		"import \"sync\"\n\nvar mu sync.Mutex":                                        true,
		"import \"sync\"\n\nvar once sync.Once":                                       true,
		"import \"sync\"\n\nvar all = sync.OnceValue(func() int { return 1 })":        false,
		"import \"example.org/m/sync\"\n\nvar New = sync.New":                         false,
		"import \"sync/atomic\"\n\nvar n atomic.Int64":                                true,
		"import \"k8s.io/client-go/util/workqueue\"\n\nvar _ = workqueue.Parallelize": true,
		"func wait() {}": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n\n"+code, parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Equal(t, want, isConcurrent(file), code)
	}
}

func TestMarksOfTests(t *testing.T) {
	writeModule(t, `
func TestEvery(t *testing.T) { t.Parallel(); marks.OnEveryVersion(t) }

func TestBoth(t *testing.T) { marks.Since(t, "1.36"); marks.Thorough(t) }

func TestNone(t *testing.T) {}

func Testing(t *testing.T) {}
`)
	all, err := scanAll(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{
		"example.org/m/a TestBoth since-1.36 thorough", "example.org/m/a TestEvery every-version",
	}, listing(all))
}

func TestMarksThatDoNotHoldAreRefused(t *testing.T) {
	for module, problem := range map[string]string{
		"func TestA(t *testing.T) { if true { marks.Thorough(t) } }":                                "marks.Thorough in TestA is not a statement of the test itself",
		"func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { marks.OnEveryVersion(t) }) }": "marks.OnEveryVersion in TestA is not",
		"func helper(t *testing.T) { marks.Thorough(t) }":                                           "helper is marked",
		"const v = \"1.36\"\n\nfunc TestA(t *testing.T) { marks.Since(t, v) }":                      "not a literal",
	} {
		writeModule(t, module)
		_, err := scanAll(t.Context())
		require.ErrorContains(t, err, problem)
	}
}

func TestRenamedAndDeletedTestsAreNoticed(t *testing.T) {
	recorded := marksHeader + "p TestA thorough\np TestB every-version\n"
	require.NoError(t, compareMarks(strings.NewReader(recorded), []string{"p TestA thorough", "p TestB every-version"}))
	err := compareMarks(strings.NewReader(recorded), []string{"p TestA every-version", "p TestC thorough"})
	require.ErrorContains(t, err, "but not in the code: p TestA thorough")
	require.ErrorContains(t, err, "but not in the code: p TestB every-version")
	require.ErrorContains(t, err, "marked in the code, but not in test/marks/marks.txt: p TestC thorough")
}

// A test of a package that no target names would never run.
func TestTestsThatNoTargetRunsAreNoticed(t *testing.T) {
	writeModule(t, "func TestA(t *testing.T) {}\n\nfunc TestNew(t *testing.T) { marks.Since(t, \"1.36\") }\n")
	require.NoError(t, os.Mkdir("b", 0o755))
	other := "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {}\n"
	require.NoError(t, os.WriteFile("b/b_test.go", []byte(other), 0o600))
	check := func(packages, older string) error {
		makefile := "test:\n\t@go run ./test/suite stages unit\n\ntest-all:\n\t@go run ./test/suite stages old+unit\n\n" +
			"unit:\n\tgo run ./test/suite test quick -timeout=1m \\\n\t\t" + packages + "\n\n" +
			"old:\n\tgo run ./test/suite test 1.36.3 " + older + "\n"
		require.NoError(t, os.WriteFile("Makefile", []byte(makefile), 0o600))
		all, err := scanAll(t.Context())
		require.NoError(t, err)
		return checkTargets(t.Context(), all)
	}
	require.NoError(t, check("$$(go list ./... | grep -v nothing)", "./a"))
	require.EqualError(t, check("$$(go list ./... | grep -v /b)", "./a"), "example.org/m/b TestB belongs to the run quick, "+
		"but no target of make test and make test-all runs it there: add its package to a target in the Makefile")
	require.EqualError(t, check("./...", "./b"), "./b: no test belongs to the run 1.36.3")
	require.ErrorContains(t, check("./missing", "./a"), "list packages")
}

// One call of go test has all packages, in their order.
func TestSelection(t *testing.T) {
	writeModule(t, "func TestSlow(t *testing.T) { marks.Thorough(t) }\n\nfunc TestQuick(t *testing.T) {}")
	require.NoError(t, os.MkdirAll("b", 0o755))
	require.NoError(t, os.WriteFile("b/b_test.go", []byte("package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {}\n"), 0o644))
	packages, err := listPackages(t.Context(), "", "./b", "./a")
	require.NoError(t, err)
	args, expected, err := selectTests(packages, "quick")
	require.NoError(t, err)
	require.Equal(t, []string{"-skip=^(TestSlow)$", "example.org/m/b", "example.org/m/a"}, args)
	require.Equal(t, []test{{"example.org/m/b", "TestB"}, {"example.org/m/a", "TestQuick"}}, expected)

	args, expected, err = selectTests(packages, "thorough")
	require.NoError(t, err)
	require.Equal(t, []string{"-run=^(TestSlow)$", "example.org/m/a"}, args)
	require.Equal(t, []test{{"example.org/m/a", "TestSlow"}}, expected)

	args, _, err = selectTests(packages[:1], "quick")
	require.NoError(t, err)
	require.Equal(t, []string{"example.org/m/b"}, args)

	slow := "package b\n\nimport (\n\t\"testing\"\n\n\t\"nstpl.dev/nstpl/test/marks\"\n)\n\n" +
		"func TestB(t *testing.T) { marks.Thorough(t) }\n\nfunc TestSlow(t *testing.T) {}\n"
	require.NoError(t, os.WriteFile("b/b_test.go", []byte(slow), 0o600))
	_, _, err = selectTests(packages, "thorough")
	require.EqualError(t, err, "the run thorough selects tests by name: rename example.org/m/b TestSlow, which does not "+
		"belong to it, or example.org/m/a TestSlow, which does")
}

func TestMissingAfterACrash(t *testing.T) {
	tally := newTally("quick")
	for _, e := range []event{
		{Action: "run", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestA"},
		{Action: "run", Package: "p", Test: "TestB"}, {Action: "output", Package: "p", Output: "exit status 2\n"},
	} {
		require.Empty(t, tally.add(e))
	}
	require.Contains(t, tally.progress(time.Minute), "1m0s: 1 tests have ended; running: TestB")
	require.Equal(t, "exit status 2\n", tally.add(event{Action: "fail", Package: "p"}))
	require.EqualError(t, tally.missing([]test{{"p", "TestA"}, {"p", "TestB"}}),
		"tests that must run did not:\n  TestB did not run")
}

func TestSummary(t *testing.T) {
	results := []result{
		{Package: "nstpl.dev/nstpl/test/b", Test: "TestSlow", Outcome: "pass", Seconds: 12, Run: "quick"},
		{Package: "nstpl.dev/nstpl/test/b", Test: "TestSlower", Outcome: "fail", Seconds: 13, Run: "1.35.4", Reason: "b_test.go:7: wrong"},
		{Package: "nstpl.dev/nstpl/test/b", Outcome: "fail", Seconds: 25, Run: "quick", Reason: "the audit found one"},
		{Package: "nstpl.dev/nstpl/test/b", Outcome: "fail", Run: "1.35.4", Reason: "FAIL"},
		{Package: "p", Test: "TestPage", Outcome: "skip", Reason: marks.NotRun + "no browser", Run: "browser"},
	}
	var out bytes.Buffer
	summarize(&out, []stage{{"unit", "passed", 3 * time.Second, 5 * time.Second}, {target: "e2e", state: "not run"}}, results)
	require.Equal(t, `
=== the slowest packages
    25.0 s  test/b (quick)

=== the slowest tests
    13.0 s  test/b TestSlower (1.35.4)
    12.0 s  test/b TestSlow (quick)

=== summary
  unit         passed       3 s      5 s of CPU time
  e2e          not run      0 s      0 s of CPU time

=== failed: test/b TestSlower (1.35.4)
b_test.go:7: wrong

=== failed: test/b (quick)
the audit found one

!!! 1 TESTS WERE NOT RUN:
!!!   TestPage: no browser
1 passed, 1 failed, 1 skipped
`, out.String())
}

// The messages of a subtest belong to its test, and what was logged before the first message is left out.
func TestReasonOfAFailure(t *testing.T) {
	writeModule(t, `
func TestA(t *testing.T) {
	println("logged")
	t.Run("b", func(t *testing.T) { t.Error("wrong") })
}

func TestB(t *testing.T) { panic("end") }
`)
	path := filepath.Join(t.TempDir(), "results")
	t.Setenv(resultsVariable, path)
	require.Error(t, runTests(t.Context(), newTestRun("quick", []string{"-count=1", "./..."}, io.Discard)))
	results, err := readResults(path)
	require.NoError(t, err)
	reasons := map[string]string{}
	for _, r := range results {
		reasons[r.Test] = r.Reason
	}
	require.Regexp(t, `^    a_test.go:\d+: wrong\n`, reasons["TestA"])
	require.Contains(t, reasons["TestB"], "a_test.go:")
}

func TestStages(t *testing.T) {
	t.Chdir(t.TempDir())
	line, err := json.Marshal(result{Package: "p", Test: "TestA", Outcome: "pass"})
	require.NoError(t, err)
	makefile := "good:\n\t@echo '" + string(line) + "' >>$(" + resultsVariable + ")\nbad:\n\t@false\n"
	require.NoError(t, os.WriteFile("Makefile", []byte(makefile), 0o644))
	require.NoError(t, runStages(t.Context(), []string{"good"}, io.Discard))

	var out bytes.Buffer
	err = runStages(t.Context(), []string{"good", "bad", "good"}, &out)
	require.EqualError(t, err, "make bad repeats what failed")
	require.Regexp(t, `bad +FAILED .*\n +good +not run .*\n1 passed, 0 failed, 0 skipped\n$`, out.String())
}

// Each of the two targets ends only when the other one has begun.
func TestStagesAtTheSameTime(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("Makefile", []byte(`
a:
	@echo hello >pipe; echo one; printf two
b:
	@cat pipe; false
`), 0o644))
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", "pipe").Run())
	var out bytes.Buffer
	require.EqualError(t, runStages(t.Context(), []string{"a+b", "a"}, &out), "make b repeats what failed")
	require.Contains(t, out.String(), "\n=== make a b\n")
	for _, line := range []string{"a: one", "a: two", "b: hello"} {
		require.Contains(t, strings.Split(out.String(), "\n"), line)
	}
	require.Regexp(t, `a +passed .*\n +b +FAILED .*\n +a +not run `, out.String())
}
