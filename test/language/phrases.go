package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// phrase is a wording that this project avoids, and the wording to use instead.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// phraseList is a list of phrases and of exceptions.
type phraseList struct {
	phrases []phrase
	// allowed match text in which phrases are not searched.
	allowed []*regexp.Regexp
}

// parse reads a list of phrases. Empty lines and lines that begin with # are ignored. The other lines are phrases or
// exceptions:
//
//	pattern => wording to use instead
//	! pattern
//
// A pattern is a regular expression that matches whole words. A space in it matches any white space, so that phrases
// are found across line breaks. A pattern without upper-case letters ignores case.
func parse(list string) (phraseList, error) {
	var parsed phraseList
	for i, line := range strings.Split(list, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		exception, isException := strings.CutPrefix(line, "! ")
		text, instead, isPhrase := strings.Cut(line, " => ")
		if isException {
			text = exception
		} else if !isPhrase {
			return phraseList{},
				fmt.Errorf("line %d: %q must have the form pattern => wording to use instead", i+1, line)
		}
		pattern, err := compile(text)
		if err != nil {
			return phraseList{}, fmt.Errorf("line %d: %w", i+1, err)
		}
		if isException {
			parsed.allowed = append(parsed.allowed, pattern)
		} else {
			parsed.phrases = append(parsed.phrases, phrase{pattern, instead})
		}
	}
	return parsed, nil
}

// compile returns a pattern as a regular expression whose first group is the matched phrase.
func compile(pattern string) (*regexp.Regexp, error) {
	flags := ""
	if !strings.ContainsFunc(pattern, unicode.IsUpper) {
		flags = "(?i)"
	}
	words := strings.Join(strings.Fields(pattern), `\s+`)
	return regexp.Compile(flags + `(?:^|[^\w-])(` + words + `)(?:$|[^\w-])`)
}

// finding is a phrase in a file.
type finding struct {
	file    string
	line    int
	text    string
	instead string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", f.file, f.line, f.text, f.instead)
}

// find returns the phrases in a passage of a file.
func (l phraseList) find(file string, p passage) []finding {
	text := p.text
	for _, allowed := range l.allowed {
		text = allowed.ReplaceAllStringFunc(text, blank)
	}
	var findings []finding
	for _, phrase := range l.phrases {
		for start := 0; start < len(text); {
			match := phrase.pattern.FindStringSubmatchIndex(text[start:])
			if match == nil {
				break
			}
			from, to := start+match[2], start+match[3]
			findings = append(findings, finding{
				file: file, line: p.line + strings.Count(text[:from], "\n"),
				text: strings.Join(strings.Fields(text[from:to]), " "), instead: phrase.instead,
			})
			start = to
		}
	}
	return findings
}

// blank returns a text of the same length and with the same lines, in which no phrase is found.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return '`'
	}, text)
}
