package report

import (
	"bytes"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/browser"
	"nstpl.dev/nstpl/test/marks"
)

// open writes the report on so many namespaces to a file, and opens it in a page.
func open(t *testing.T, page *browser.Page, namespaces int) {
	t.Helper()
	openContents(t, page, contentsOf(namespaces))
}

func openContents(t *testing.T, page *browser.Page, x contents) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, writeHTML(file, []Report{compute(x)}))
	require.NoError(t, file.Close())
	page.Open("file://" + path)
}

// rows is an expression for the visible rows of the matrix.
const rows = `[...document.querySelectorAll(".matrix tbody tr")].filter((row) => row.offsetParent !== null)`

func TestThePageInABrowser(t *testing.T) {
	marks.InBrowser(t, browser.Lacks())
	b := browser.New(t)
	for _, namespaces := range []int{3, 3000} {
		t.Run(fmt.Sprint(namespaces, " namespaces"), func(t *testing.T) {
			page := b.NewPage()
			page.Resize(1280, 900)
			open(t, page, namespaces)
			var shown int
			page.Eval(rows+".length", &shown)
			require.Equal(t, min(namespaces, 100), shown)
			checkColors(t, page)
			filters(t, page, namespaces)
			sorts(t, page)
			require.Empty(t, page.Errors())
			requests := page.Requests()
			require.Len(t, requests, 1, "the page requests nothing but itself")
			require.True(t, strings.HasPrefix(requests[0], "file://"))
			if namespaces == 3 {
				reads(t, page)
			}
		})
	}
}

// filters types into the filter of namespaces, chooses a state, and shows all rows.
func filters(t *testing.T, page *browser.Page, namespaces int) {
	t.Helper()
	set := func(selector, value, event string) (names []string) {
		page.Eval(fmt.Sprintf(`{
			const field = document.querySelector('[data-enhance="namespaces"] %s');
			field.value = %q;
			field.dispatchEvent(new Event(%q, { bubbles: true }));
		}`, selector, value, event), nil)
		page.Eval(rows+".map((row) => row.cells[0].textContent)", &names)
		return names
	}
	require.Equal(t, []string{"shop-0002"}, set("input", "SHOP-0002", "input"))
	set("input", "", "input")
	require.Contains(t, set("select", string(Drifted), "change"), "shop-0001")
	require.NotContains(t, set("select", string(Drifted), "change"), "shop-0000")
	set("select", "", "change")
	if namespaces > 100 {
		page.Eval(`document.querySelector('[data-enhance="namespaces"] .tools button').click()`, nil)
	}
	var shown int
	page.Eval(rows+".length", &shown)
	require.Equal(t, namespaces, shown)
}

// sorts clicks on the headers of the matrix.
func sorts(t *testing.T, page *browser.Page) {
	t.Helper()
	var first, direction string
	for _, want := range []string{"ascending", "descending"} {
		page.Eval(`document.querySelector(".matrix th button").click()`, nil)
		page.Eval(`document.querySelector(".matrix th").getAttribute("aria-sort")`, &direction)
		require.Equal(t, want, direction)
		page.Eval(rows+"[0].cells[0].textContent", &first)
		require.Equal(t, want == "ascending", first == "shop-0000", first)
	}
}

// checkColors resizes the window, and checks colors on screen and on paper.
func checkColors(t *testing.T, page *browser.Page) {
	t.Helper()
	var overflow bool
	var width float64
	for _, width := range []int{375, 768, 1280} {
		page.Resize(width, 800)
		page.Eval("document.documentElement.scrollWidth > document.documentElement.clientWidth", &overflow)
		require.False(t, overflow, "the page is wider than a window of %d pixels", width)
	}
	page.Resize(375, 800)
	page.Eval(`document.querySelector(".matrix tbody td").getBoundingClientRect().left`, &width)
	require.Less(t, width, 375.0, "the first state is visible on a phone")
	colours := func(medium, scheme string) (colour string) {
		page.Media(medium, scheme)
		page.Eval("getComputedStyle(document.body).backgroundColor", &colour)
		return colour
	}
	require.Equal(t, "rgb(255, 255, 255)", colours("", "light"))
	require.Equal(t, "rgb(17, 21, 26)", colours("", "dark"))
	require.Equal(t, "rgb(255, 255, 255)", colours("print", "dark"), "paper is not dark")
	var tools string
	page.Eval(`getComputedStyle(document.querySelector(".tools")).display`, &tools)
	require.Equal(t, "none", tools)
	page.Media("", "light")
}

// reads looks at the page as a screen reader does.
func reads(t *testing.T, page *browser.Page) {
	t.Helper()
	nodes := page.Nodes()
	for _, want := range []browser.Node{
		{Role: "heading", Name: "Policy report on production"},
		{Role: "heading", Name: "Findings"},
		{Role: "heading", Name: "Who may what"},
		{Role: "navigation", Name: "Sections"},
		{Role: "searchbox", Name: "Filter namespaces"},
		{Role: "combobox", Name: "State"},
		{Role: "table", Name: "Namespaces and the templates that select them"},
		{Role: "columnheader", Name: "quota"},
		{Role: "rowheader", Name: "shop-0000"},
		{Role: "meter", Name: "pods in corp"},
	} {
		require.True(t, slices.Contains(nodes, want), "%v is missing", want)
	}
	for _, n := range nodes {
		if slices.Contains([]string{"searchbox", "combobox", "button", "link", "meter", "heading"}, n.Role) {
			require.NotEmpty(t, n.Name, "a %s has no name", n.Role)
		}
	}
}

// A mail is read without scripts.
func TestThePageWithoutScripts(t *testing.T) {
	marks.InBrowser(t, browser.Lacks())
	page := browser.New(t).NewPage()
	page.DisableScripts()
	open(t, page, 300)
	nodes := page.Nodes()
	for _, want := range []browser.Node{{Role: "rowheader", Name: "shop-0299"}, {Role: "cell", Name: "✗ failed r1"}} {
		require.True(t, slices.Contains(nodes, want), "%v is missing", want)
	}
	for _, n := range nodes {
		require.NotContains(t, []string{"searchbox", "combobox", "button"}, n.Role, "a control does nothing")
	}
	require.Empty(t, page.Errors())
}

// updatePictures writes the pictures in the README.
var updatePictures = flag.Bool("update-pictures", false, "write the pictures of the report into docs/pictures")

// The README shows the report as a browser does, in light and dark colours. Fonts differ between machines, so the stored
// pictures only resemble the page.
func TestPicturesOfTheReport(t *testing.T) {
	marks.InBrowser(t, browser.Lacks())
	page := browser.New(t).NewPage()
	page.Resize(1100, 720)
	x := contentsOf(12)
	for _, ns := range x.namespaces {
		for i := range ns.Status.Conditions {
			condition := &ns.Status.Conditions[i]
			condition.Message = strings.Replace(condition.Message, "<b>no</b>", "exceeded quota: objects", 1)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		page.Media("", scheme)
		openContents(t, page, x)
		shot := page.Screenshot()
		path := filepath.Join("..", "..", "..", "docs", "pictures", "report-"+scheme+".png")
		if *updatePictures {
			require.NoError(t, os.WriteFile(path, shot, 0o644))
		}
		stored, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Less(t, len(stored), 300_000)
		require.Less(t, difference(t, stored, shot), 12.0, "run go test ./plugin/internal/report -run Pictures -args -update-pictures")
	}
}

// difference returns the mean difference between the brightness of two pictures' pixels, of 255.
func difference(t *testing.T, a, b []byte) float64 {
	t.Helper()
	first, err := png.Decode(bytes.NewReader(a))
	require.NoError(t, err)
	second, err := png.Decode(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, first.Bounds(), second.Bounds())
	sum, size := 0.0, first.Bounds().Size()
	for x := range size.X {
		for y := range size.Y {
			one, other := color.GrayModel.Convert(first.At(x, y)), color.GrayModel.Convert(second.At(x, y))
			sum += math.Abs(float64(one.(color.Gray).Y) - float64(other.(color.Gray).Y))
		}
	}
	return sum / float64(size.X*size.Y)
}
