package cli

import (
	"regexp"
	"strconv"
	"strings"
)

// CommandIn returns a command line for the cluster of a context, which is empty without --contexts. Each of the words
// may have several words.
func CommandIn(context string, words ...string) string {
	line := strings.Join(words, " ")
	if context == "" {
		return line
	}
	if !plainContext.MatchString(context) {
		context = strconv.Quote(context)
	}
	return line + " --context " + context
}

// plainContext matches the names of contexts that a shell reads as one word.
var plainContext = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// InContext returns a text whose commands of kubectl, which are in single quotes, are for the cluster of a context.
// Users run what a message proposes in their current context, which may be that of another cluster. Without a context,
// InContext returns the text as it is.
func InContext(context, text string) string {
	if context == "" {
		return text
	}
	return quotedCommand.ReplaceAllStringFunc(text, func(quoted string) string {
		command := strings.Trim(quoted, "'")
		if strings.HasPrefix(command, "kubectl krew ") || strings.Contains(command, " --context ") {
			return quoted // krew manages plugins of the user's machine
		}
		return "'" + CommandIn(context, command) + "'"
	})
}

var quotedCommand = regexp.MustCompile(`'kubectl [^']+'`)
