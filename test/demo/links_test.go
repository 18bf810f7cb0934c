package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// pages returns the paths of all pages for people.
func pages(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "test/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

var (
	link    = regexp.MustCompile(`(?:\]\(|srcset="|src=")([^)\s"]+)[)"]`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	block   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code    = regexp.MustCompile("`[^`\n]*`")
)

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(markdown string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(block.ReplaceAllString(markdown, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, match[1])
		name := anchor
		for i := 1; found[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor, i)
		}
		found[name] = true
	}
	return found
}

// broken returns an error if the target of a link in a page does not exist. It does not follow URLs.
func broken(page, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	path, anchor, _ := strings.Cut(target, "#")
	if path == "" {
		path = page
	} else {
		path = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if anchor == "" || filepath.Ext(path) != ".md" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err == nil && !anchors(string(content))[anchor] {
		err = fmt.Errorf("%s has no heading #%s", path, anchor)
	}
	return err
}

// Every link of a page leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, path := range pages(t, "../..") {
		text := code.ReplaceAllString(block.ReplaceAllString(read(t, path), ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			require.NoError(t, broken(path, match[1]), "%s: %s", path, match[0])
		}
	}
	require.Error(t, broken("../../README.md", "docs/nothing.md"))
	require.Error(t, broken("../../README.md", "docs/concepts.md#nothing"))
	require.NoError(t, broken("../../README.md", "docs/concepts.md#initializing-held"))
}

// Every alert leads to the section of the runbook for it.
func TestRunbook(t *testing.T) {
	t.Parallel()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string
					Annotations map[string]string
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../../manifests/components/prometheus/prometheusrule.yaml")),
		&rules))
	runbook := read(t, "../../docs/runbook.md")
	for _, rule := range rules.Spec.Groups[0].Rules {
		require.Contains(t, rows(runbook), "`"+rule.Alert+"`", "the table of alerts")
		section := regexp.MustCompile(`docs/runbook\.md#([a-z0-9-]+)`).FindStringSubmatch(rule.Annotations["runbook"])
		require.NotNil(t, section, rule.Alert)
		require.True(t, anchors(runbook)[section[1]], "%s: %s", rule.Alert, section[0])
	}
}

var (
	// drawn and named match paths of files and folders in the drawings and in the text of the page on architecture.
	drawn = regexp.MustCompile(`<br>([a-z0-9]+(?:/[a-z0-9.-]+)+)"`)
	named = regexp.MustCompile("`((?:operator|plugin|manifests|test)/[a-z0-9/.-]+)`")
)

// The files and folders that the page on architecture names exist.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs/architecture.md")
	paths := append(drawn.FindAllStringSubmatch(text, -1), named.FindAllStringSubmatch(text, -1)...)
	require.Greater(t, len(paths), 30)
	for _, path := range paths {
		_, err := os.Stat(filepath.Join("../..", path[1]))
		require.NoError(t, err)
	}
}
