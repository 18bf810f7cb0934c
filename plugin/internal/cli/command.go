package cli

import (
	"regexp"
	"strconv"
	"strings"
)

// Commands returns a text whose commands of kubectl have the session's flags that select a cluster. Users copy what a
// text proposes, and without these flags, kubectl would run it in the cluster of the current context. A command that
// has such a flag keeps it.
func (s Session) Commands(text string) string {
	var flags [][2]string
	for _, flag := range []struct {
		name  string
		value *string
	}{
		{"kubeconfig", s.Config.KubeConfig}, {"context", s.Config.Context},
		{"cluster", s.Config.ClusterName}, {"server", s.Config.APIServer},
	} {
		if flag.value != nil && *flag.value != "" {
			flags = append(flags, [2]string{" --" + flag.name + " ", word(*flag.value)})
		}
	}
	if len(flags) == 0 {
		return text
	}
	return proposed.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasPrefix(command, "'kubectl krew ") || strings.HasSuffix(command, " -h'") {
			return command // needs no cluster
		}
		end := ""
		if command[0] == '\'' {
			command, end = command[:len(command)-1], "'"
		}
		for _, flag := range flags {
			if !strings.Contains(command, flag[0]) {
				command += flag[0] + flag[1]
			}
		}
		return command + end
	})
}

// proposed matches the commands of kubectl in a text: those in single quotes, and those that end a line.
var proposed = regexp.MustCompile(`(?m)'kubectl [^']+'|(?:: |\| |^)kubectl (?:create|nstpl) .+$`)

// word returns the value of a flag as one word of a command line.
func word(value string) string {
	if plainWord.MatchString(value) {
		return value
	}
	return strconv.Quote(value)
}

// plainWord matches the texts that a shell reads as one word.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
