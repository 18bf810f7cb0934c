package browser_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/browser"
	"nstpl.dev/nstpl/test/marks"
)

// The release of Mermaid that draws the diagrams here, and its digest in npm's registry. GitHub has a release of its own:
// the diagrams use no syntax that is new.
const (
	mermaidVersion = "11.12.3"
	mermaidDigest  = "wN5ZSgJQIC+CHJut9xaKWsknLxaFBwCPwPkGTSUYrTiHORWvpT8RxGk849HPnpUAQ+/9BPRqYb80jTpearrHzQ=="
)

// lacks returns what the machine lacks to draw diagrams, or an empty string.
func lacks() string {
	if lack := browser.Lacks(); lack != "" {
		return lack
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "npm is needed to fetch Mermaid, such as that of the Debian package npm"
	}
	return ""
}

// diagram matches the diagrams of a page.
var diagram = regexp.MustCompile("(?s)```mermaid\n(.*?)```")

// Mermaid draws every diagram of the manuals, so GitHub shows a drawing and no error.
func TestDiagrams(t *testing.T) {
	marks.InBrowser(t, lacks())
	folder := t.TempDir()
	fetchMermaid(t, filepath.Join(folder, "mermaid.js"))
	html := filepath.Join(folder, "page.html")
	require.NoError(t, os.WriteFile(html,
		[]byte(`<!DOCTYPE html><meta charset="utf-8"><script src="mermaid.js"></script><body>`), 0o600))
	page := browser.New(t).NewPage()
	page.Open("file://" + html)
	page.Eval(`mermaid.initialize({startOnLoad: false, securityLevel: "strict"})`, nil)
	drawn := 0
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, match := range diagram.FindAllStringSubmatch(string(content), -1) {
				require.Empty(t, draw(t, page, drawn, match[1]), "%s:\n%s", path, match[1])
				drawn++
			}
		}
	}
	require.GreaterOrEqual(t, drawn, 8)
	require.NotEmpty(t, draw(t, page, drawn, "flowchart LR\n  a --> (b"), "a mistake is found")
	if folder := os.Getenv("PICTURES"); folder != "" { // to look at them
		page.Resize(1000, 6000)
		require.NoError(t, os.WriteFile(filepath.Join(folder, "diagrams.png"), page.Screenshot(), 0o600))
	}
}

// draw adds a diagram to the page. It returns why Mermaid cannot draw it, or an empty string.
func draw(t *testing.T, page *browser.Page, number int, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	require.NoError(t, err)
	var failure string
	page.Eval(fmt.Sprintf(`mermaid.render("d%d", %s).then(({svg}) => {
		document.body.insertAdjacentHTML("beforeend", svg); return "";
	}, (error) => String(error))`, number, quoted), &failure)
	return failure
}

// fetchMermaid writes Mermaid's script to a file. npm fetches it, and keeps it in its cache.
func fetchMermaid(t *testing.T, to string) {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "--prefer-offline", "mermaid@"+mermaidVersion)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "npm pack: %s", out)
	archive, err := os.ReadFile(filepath.Join(folder, "mermaid-"+mermaidVersion+".tgz"))
	require.NoError(t, err)
	digest := sha512.Sum512(archive)
	require.Equal(t, mermaidDigest, base64.StdEncoding.EncodeToString(digest[:]))
	file, err := os.Open(filepath.Join(folder, "mermaid-"+mermaidVersion+".tgz"))
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		require.NoError(t, err)
		if header.Name == "package/dist/mermaid.min.js" {
			script, err := io.ReadAll(files)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, script, 0o600))
			return
		}
	}
}
