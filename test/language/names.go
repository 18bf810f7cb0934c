package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"unicode"
)

//go:embed names.txt
var nameList string

// name is an identifier that a Go file declares.
type name struct {
	line       int
	identifier string
}

// declaredNames returns the functions, methods, types, fields, constants and package variables that a Go file declares.
// It leaves out local names.
func declaredNames(path string, content []byte) ([]name, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var declared []name
	add := func(identifiers ...*ast.Ident) {
		for _, identifier := range identifiers {
			declared = append(declared, name{files.Position(identifier.Pos()).Line, identifier.Name})
		}
	}
	for _, declaration := range file.Decls {
		if function, is := declaration.(*ast.FuncDecl); is {
			add(function.Name)
			continue
		}
		for _, spec := range declaration.(*ast.GenDecl).Specs {
			if value, is := spec.(*ast.ValueSpec); is {
				add(value.Names...)
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.TypeSpec:
			add(node.Name)
		case *ast.StructType:
			for _, field := range node.Fields.List {
				add(field.Names...)
			}
		case *ast.InterfaceType:
			for _, method := range node.Methods.List {
				add(method.Names...)
			}
		}
		return true
	})
	return declared, nil
}

// words returns the words of an identifier in lower case, with spaces between them: "list by UID" for listByUID.
func words(identifier string) string {
	var text strings.Builder
	runes := []rune(identifier)
	for i, r := range runes {
		isStart := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if isStart || r == '_' {
			text.WriteByte(' ')
		}
		if r != '_' {
			text.WriteRune(unicode.ToLower(r))
		}
	}
	return text.String()
}

// findNames returns the names in a Go file that contain words to avoid.
func (l phraseList) findNames(file string, content []byte) ([]finding, error) {
	declared, err := declaredNames(file, content)
	var findings []finding
	for _, name := range declared {
		for _, found := range l.find(file, passage{name.line, words(name.identifier)}) {
			found.text = fmt.Sprintf("%s in %s", found.text, name.identifier)
			findings = append(findings, found)
		}
	}
	return findings, err
}
