package main

import (
	"os"
	"strings"
)

// step is a command that the README shows, with what it says that the command prints.
type step struct {
	command string
	output  string
}

func readSteps(path string) ([]step, error) {
	content, err := os.ReadFile(path)
	return parseSteps(string(content)), err
}

// parseSteps returns the commands in a Markdown text's console blocks. A command follows "$ ", and goes on in the next
// line after a backslash.
func parseSteps(markdown string) []step {
	var steps []step
	inside := false
	continued := false
	for line := range strings.Lines(markdown) {
		text := strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(text, "$ ")
		switch {
		case !inside:
			inside = text == "```console"
			continue
		case text == "```":
			inside = false
			continue
		case continued:
			steps[len(steps)-1].command += "\n" + text
		case isCommand:
			steps = append(steps, step{command: command})
		case len(steps) > 0:
			steps[len(steps)-1].output += line
			continue
		}
		continued = strings.HasSuffix(text, `\`)
	}
	return steps
}
