// Package marks says in a test which runs of the suite it belongs to. Each function is called first in a test, so that
// the package suite finds the mark in the source. A test without a mark belongs to make test only, which runs it
// with the default version of Kubernetes.
package marks

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// OnEveryVersion marks a test that also runs with the older versions of Kubernetes that make test-all tests.
func OnEveryVersion(t testing.TB) {
	t.Helper()
	t.Attr("versions", "every")
}

// Since is like OnEveryVersion for versions from the given one on, such as "1.36". On an older version it skips
// the test.
func Since(t testing.TB, since string) {
	t.Helper()
	t.Attr("versions", "since "+since)
	if running := os.Getenv("K8S_VERSION"); running != "" && !atLeast(running, since) {
		t.Skipf("Kubernetes %s is older than %s", running, since)
	}
}

// Thorough marks a test that needs a control plane of its own, or that takes long and finds few mistakes that others do
// not find. make test leaves it to make test-all.
func Thorough(t testing.TB) {
	t.Helper()
	t.Attr("thorough", "true")
	thorough.Store(t.Name(), nil)
}

// thorough has the names of the tests that called Thorough.
var thorough sync.Map

// IsThorough reports whether a test, or the test that it is a part of, is marked as thorough.
func IsThorough(t testing.TB) bool {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	_, isMarked := thorough.Load(name)
	return isMarked
}

// OnNode marks a test that needs a real node, and skips it if the machine lacks something for that.
func OnNode(t testing.TB, lacks string) {
	t.Helper()
	skipIf(t, lacks)
}

// InBrowser marks a test that needs a browser, and skips it if the machine lacks one.
func InBrowser(t testing.TB, lacks string) {
	t.Helper()
	skipIf(t, lacks)
}

// NotRun begins the reason of a skipped test that the suite counts as not run.
const NotRun = "NOT RUN: "

func skipIf(t testing.TB, lacks string) {
	t.Helper()
	if lacks != "" {
		t.Skip(NotRun + lacks)
	}
}

// atLeast reports whether a version of Kubernetes, such as 1.36.3, is the minimum, such as 1.36, or newer.
func atLeast(running, minimum string) bool {
	return version.MustParseGeneric(running).AtLeast(version.MustParseGeneric(minimum))
}

// Mark is what a test says about itself.
type Mark struct {
	// Since is the oldest version of Kubernetes besides the default one that the test runs with: "0.0" is every
	// version, and "" is none.
	Since                     string
	Thorough, Node, InBrowser bool
}

// String returns the marks as they are listed, and an empty text for a test without marks.
func (m Mark) String() string {
	var all []string
	switch m.Since {
	case "":
	case "0.0":
		all = append(all, "every-version")
	default:
		all = append(all, "since-"+m.Since)
	}
	for _, mark := range []struct {
		set  bool
		name string
	}{{m.Thorough, "thorough"}, {m.Node, "node"}, {m.InBrowser, "browser"}} {
		if mark.set {
			all = append(all, mark.name)
		}
	}
	return strings.Join(all, " ")
}

// Selects reports whether a test with the mark belongs to a run: "quick", "race", "thorough", "node", "browser",
// or a version of Kubernetes.
func (m Mark) Selects(run string) (bool, error) {
	switch run {
	case "quick", "race":
		return !m.Thorough && !m.Node && !m.InBrowser, nil
	case "thorough":
		return m.Thorough && !m.Node && !m.InBrowser, nil
	case "node":
		return m.Node, nil
	case "browser":
		return m.InBrowser, nil
	}
	if _, err := version.ParseGeneric(run); err != nil {
		return false, fmt.Errorf("%q is not a run: use quick, race, thorough, node, browser, or a version of Kubernetes", run)
	}
	return m.Since != "" && atLeast(run, m.Since), nil
}
