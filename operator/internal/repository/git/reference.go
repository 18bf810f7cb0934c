package git

import (
	"regexp"
	"strings"
)

// Reference selects a commit. Exactly one field must be set.
type Reference struct {
	Branch string // without refs/heads/
	Tag    string // without refs/tags/
	Commit string // 40 hexadecimal digits
}

var (
	fullHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
	// notInRef matches what git does not allow in the name of a reference.
	notInRef = regexp.MustCompile(`[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/.-]|/\.|[/.]$|\.lock(/|$)|^@$`)
)

func (r Reference) check() error {
	set := 0
	for _, value := range []string{r.Branch, r.Tag, r.Commit} {
		if value != "" {
			set++
		}
	}
	if set != 1 {
		return failf(InvalidConfiguration, "the reference must have exactly one of branch, tag and commit")
	}
	for kind, name := range map[string]string{"branch": r.Branch, "tag": r.Tag} {
		switch {
		case name == "":
		case strings.HasPrefix(name, "refs/"):
			return failf(InvalidConfiguration, "the %s %q begins with refs/: write only the name of the %s",
				kind, printable(name, 100), kind)
		case len(name) > 250 || notInRef.MatchString(name):
			return failf(InvalidConfiguration, "%q is not a valid name of a %s", printable(name, 100), kind)
		}
	}
	if r.Commit != "" && !fullHash.MatchString(r.Commit) {
		return failf(InvalidConfiguration,
			"%q is not a commit: write all 40 hexadecimal digits, in lower case", printable(r.Commit, 64))
	}
	return nil
}

// name returns the full name of a branch or tag.
func (r Reference) name() string {
	if r.Tag != "" {
		return "refs/tags/" + r.Tag
	}
	return "refs/heads/" + r.Branch
}

// String describes the reference, such as "branch main".
func (r Reference) String() string {
	switch {
	case r.Branch != "":
		return "branch " + r.Branch
	case r.Tag != "":
		return "tag " + r.Tag
	}
	return "commit " + r.Commit
}
