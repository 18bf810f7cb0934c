package page_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/page"
)

func TestParse(t *testing.T) {
	t.Parallel()
	markdown := "# a\ntext\n```console\n$ one\nits output\n\nmore\n$ two \\\n  three\n```\n$ not a command\n```sh\n$ nor this\n```\n## b c\n```console\n$ four\n```\n"
	require.Equal(t, []page.Step{
		{Section: "a", Command: "one", Output: "its output\n\nmore\n"},
		{Section: "a", Command: "two \\\n  three"},
		{Section: "b c", Command: "four"},
	}, page.Parse(markdown))
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	require.Equal(t, page.Normalize("b  <x>  10s\na 1m3s\n"), page.Normalize("a 4s\nb <x>    200ms"))
	require.Equal(t, page.Normalize("at 2026-01-02T03:04:05Z"), page.Normalize("at 2027-11-12T13:14:15+01:00"))
	require.NotEqual(t, page.Normalize("a 1"), page.Normalize("a 2"))
}
