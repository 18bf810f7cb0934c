package cli

import (
	"regexp"
	"strconv"
	"strings"
)

// Commands returns a text for people whose commands of kubectl have the session's flags that select a cluster. Users
// copy what a text proposes, and without these flags, kubectl would run it in the cluster of the current context. A
// command that has such a flag keeps it. Call it where text is printed: structured output has the commands as they are.
func (s Session) Commands(text string) string {
	return withFlags(text, append([]clusterFlag{{"--kubeconfig", s.Config.KubeConfig}}, s.clusterFlags()...))
}

// CommandsElsewhere returns a text as Commands does, for readers who may use another machine: without --kubeconfig.
func (s Session) CommandsElsewhere(text string) string { return withFlags(text, s.clusterFlags()) }

// clusterFlag is a flag that selects a cluster. Its value may be nil or empty.
type clusterFlag struct {
	name  string
	value *string
}

// clusterFlags returns the flags that select a cluster, except for the file that describes it. The flag for the server
// is abbreviated, since vet and preview have another flag --server.
func (s Session) clusterFlags() []clusterFlag {
	return []clusterFlag{
		{"--context", s.Config.Context}, {"--cluster", s.Config.ClusterName}, {"-s", s.Config.APIServer},
	}
}

// withFlags adds the flags that have a value to the commands of kubectl in a text.
func withFlags(text string, flags []clusterFlag) string {
	return proposed.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasPrefix(command, "'kubectl krew ") || strings.HasSuffix(command, " -h'") {
			return command // needs no cluster
		}
		end := ""
		if command[0] == '\'' {
			command, end = command[:len(command)-1], "'"
		}
		for _, flag := range flags {
			if flag.value != nil && *flag.value != "" && !strings.Contains(command, " "+flag.name+" ") {
				command += " " + flag.name + " " + word(*flag.value)
			}
		}
		return command + end
	})
}

// proposed matches the commands of kubectl in a text: those in single quotes, and those that end a line. A word in
// double quotes, such as a name of a context, may contain single quotes.
var proposed = regexp.MustCompile(
	`(?m)'kubectl (?:"(?:[^"\\\n]|\\.)*"|[^'])+'|(?:: |\| |^)kubectl (?:create|nstpl) .+$`)

// word returns the value of a flag as one word of a command line, in which a shell expands nothing.
func word(value string) string {
	if plainWord.MatchString(value) {
		return value
	}
	return strings.NewReplacer("$", `\$`, "`", "\\`").Replace(strconv.Quote(value))
}

// plainWord matches the texts that a shell reads as one word.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
