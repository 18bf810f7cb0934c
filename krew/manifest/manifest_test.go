package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/krew/manifest"
)

const good = `
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nstpl
spec:
  version: v1.2.3
  homepage: https://example.com
  shortDescription: Short
  description: Long
  platforms:
  - selector:
      matchLabels: {os: linux, arch: amd64}
    uri: https://example.com/a.tar.gz
    sha256: a000000000000000000000000000000000000000000000000000000000000000
    bin: kubectl-nstpl
    files: [{from: kubectl-nstpl, to: .}, {from: LICENSE, to: .}]
  - selector:
      matchExpressions: [{key: os, operator: In, values: [darwin, windows]}]
    uri: https://example.com/b.tar.gz
    sha256: a000000000000000000000000000000000000000000000000000000000000000
    bin: kubectl-nstpl
    files: [{from: kubectl-nstpl, to: .}, {from: LICENSE, to: .}]
`

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, new, want string }{
		"a valid manifest":      {"", "", ""},
		"another kind":          {"kind: Plugin", "kind: Plug", "the object is a Plug"},
		"another name":          {"name: nstpl", "name: other", `metadata.name is "other"`},
		"a version without v":   {"v1.2.3", "1.2.3", `spec.version is "1.2.3"`},
		"an incomplete version": {"v1.2.3", "v1.2", `spec.version is "v1.2"`},
		"a long description": {
			"Short", strings.Repeat("long ", 11), "spec.shortDescription must be a line of at most 50 characters",
		},
		"no homepage": {"homepage: https://example.com", "homepage: ''", "spec.homepage is missing"},
		"plain http":  {"https://example.com/a", "http://example.com/a", "uri is"},
		"a short sum": {"sha256: a0", "sha256: a", "sha256 is"},
		"a path outside of the archive": {
			"from: kubectl-nstpl", "from: ../kubectl-nstpl", `"../kubectl-nstpl" is not a valid path`,
		},
		"no files": {
			"files: [{from: kubectl-nstpl, to: .}, {from: LICENSE, to: .}]", "files: []", "files is empty",
		},
		"no license installed":  {", {from: LICENSE, to: .}", "", `files does not contain "LICENSE"`},
		"no program installed":  {"{from: kubectl-nstpl, to: .}, ", "", `files does not contain "kubectl-nstpl"`},
		"an empty selector":     {"matchLabels: {os: linux, arch: amd64}", "matchLabels: {}", "selector is empty"},
		"overlapping platforms": {"[darwin, windows]", "[darwin, linux]", "2 platforms select linux/amd64"},
		"an unknown machine":    {"arch: amd64", "arch: abacus", "selector selects none"},
		"another label":         {"arch: amd64", "libc: musl", `selector uses the label "libc"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin, err := manifest.Parse([]byte(strings.Replace(good, test.old, test.new, 1)))
			require.NoError(t, err)
			problems := plugin.Check("nstpl")
			if test.want == "" {
				require.Empty(t, problems)
				return
			}
			require.NotEmpty(t, problems)
			require.ErrorContains(t, problems[0], test.want)
		})
	}
	_, err := manifest.Parse([]byte(good + "  bins: x\n"))
	require.ErrorContains(t, err, `unknown field "bins"`)
}

func TestPlatformsFor(t *testing.T) {
	t.Parallel()
	plugin, err := manifest.Parse([]byte(good))
	require.NoError(t, err)
	require.Len(t, plugin.PlatformsFor("linux/amd64"), 1)
	require.Empty(t, plugin.PlatformsFor("linux/arm64"))
	require.Len(t, plugin.PlatformsFor("windows/arm64"), 1)
}

func TestRenderedManifestFollowsTheRules(t *testing.T) {
	t.Parallel()
	var archives []manifest.Archive
	for _, system := range []string{"linux", "darwin", "windows"} {
		archives = append(archives, manifest.Archive{
			OS: system, Arch: "amd64", URI: "https://example.com/" + system + ".tar.gz",
			SHA256: strings.Repeat("a", 64),
			Bin:    "kubectl-nstpl",
		})
	}
	content, err := manifest.Render("v1.2.3", archives)
	require.NoError(t, err)
	plugin, err := manifest.Parse(content)
	require.NoError(t, err)
	require.Empty(t, plugin.Check("nstpl"))
	require.Equal(t, "v1.2.3", plugin.Spec.Version)
	selected := plugin.PlatformsFor("darwin/amd64")
	require.Len(t, selected, 1)
	require.Equal(t, "https://example.com/darwin.tar.gz", selected[0].URI)
}
