package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// passage is text that begins on a line of a file. It has as many lines as its source.
type passage struct {
	line int
	text string
}

// commentMarker is what begins a line of a comment. White space at the beginning of the line is part of it.
var commentMarker = regexp.MustCompile(`(?m)^[ \t]*(//+|#+|/\*|\*/)`)

// hashComment is a comment in YAML and in scripts, and its marker.
var hashComment = regexp.MustCompile(`(?:^|\s)#+`)

// codeSpan is code within Markdown text.
var codeSpan = regexp.MustCompile("`[^`\n]+`")

// passages returns the texts of a file that are meant for readers. It returns none for files of an unknown type.
func passages(path string, content []byte) ([]passage, error) {
	switch filepath.Ext(path) {
	case ".go":
		return goPassages(path, content)
	case ".md":
		return []passage{{1, markdownText(string(content))}}, nil
	case ".json", ".sh", ".tmpl", ".yaml", ".yml":
		return []passage{{1, commentMarker.ReplaceAllString(string(content), "")}}, nil
	case ".txtar":
		return []passage{{1, hashComments(string(content))}}, nil
	}
	if filepath.Base(path) == "Makefile" {
		return []passage{{1, hashComments(string(content))}}, nil
	}
	return nil, nil
}

// markdownText returns the text of a Markdown file without code. In code blocks, comments remain.
func markdownText(content string) string {
	lines := strings.Split(content, "\n")
	inBlock := false
	for i, line := range lines {
		switch isFence := strings.HasPrefix(strings.TrimSpace(line), "```"); {
		case isFence:
			inBlock, lines[i] = !inBlock, ""
		case inBlock:
			lines[i] = hashComments(line)
		default:
			lines[i] = codeSpan.ReplaceAllStringFunc(line, blank)
		}
	}
	return strings.Join(lines, "\n")
}

// hashComments returns the text of the comments that begin with #. Lines without a comment are empty.
func hashComments(content string) string {
	lines := strings.Split(content, "\n")
	for i, line := range lines {
		lines[i] = ""
		if marker := hashComment.FindStringIndex(line); marker != nil {
			lines[i] = line[marker[1]:]
		}
	}
	return strings.Join(lines, "\n")
}

// goPassages returns the comments of a Go file, and its string literals that have more than one word.
func goPassages(path string, content []byte) ([]passage, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []passage
	add := func(node ast.Node, text string) {
		found = append(found, passage{files.Position(node.Pos()).Line, text})
	}
	for _, group := range file.Comments {
		from, to := files.Position(group.Pos()).Offset, files.Position(group.End()).Offset
		add(group, commentMarker.ReplaceAllString(string(content[from:to]), ""))
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if _, ok := node.(*ast.ImportSpec); ok {
			return false
		}
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") {
				if literal.Value[0] == '"' {
					text = strings.ReplaceAll(text, "\n", " ") // an escape sequence, not a line of the source
				}
				add(literal, text)
			}
		}
		return true
	})
	return found, nil
}
