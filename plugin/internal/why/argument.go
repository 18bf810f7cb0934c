package why

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/codes"
)

// subject is what the arguments ask about: an object, if resource is not empty, or else a message.
type subject struct {
	resource, name string
	message        string
}

var (
	// resourceName matches the first part of TYPE/NAME, such as pod, netpol or deployments.v1.apps.
	resourceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]*$`)
	// objectName matches the names of objects. Those of RBAC can have colons.
	objectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:_-]*$`)
)

// parse tells the forms of arguments apart: TYPE/NAME, TYPE NAME, the name of a namespace, or a message. A text with a
// code is a message, and so is every other text with spaces. A code alone is a message, too, and no namespace.
func parse(args []string) (subject, error) {
	text := strings.TrimSpace(strings.Join(args, " "))
	switch {
	case text == "":
		return subject{}, errors.New("specify an object as TYPE/NAME, files with -f, or an error message")
	case len(codes.Find(text)) > 0:
		return subject{message: text}, nil
	case len(args) == 2 && resourceName.MatchString(args[0]) && objectName.MatchString(args[1]):
		return subject{resource: args[0], name: args[1]}, nil
	case len(args) > 1, strings.ContainsAny(text, " \t\n"):
		return subject{message: text}, nil
	}
	if code := codes.Code(strings.TrimPrefix(text, "nstpl:")); isKnown(code) {
		return subject{message: code.AddTo("")}, nil
	}
	resource, name, found := strings.Cut(text, "/")
	switch {
	case !found && len(validation.IsDNS1123Label(text)) == 0:
		return subject{resource: "namespaces", name: text}, nil
	case !found:
		return subject{}, fmt.Errorf("%q is neither a namespace, nor an object as TYPE/NAME, nor an error message", text)
	case !resourceName.MatchString(resource), !objectName.MatchString(name):
		return subject{}, fmt.Errorf("%q is not an object as TYPE/NAME, such as namespace/team-a", text)
	}
	return subject{resource: resource, name: name}, nil
}

func isKnown(code codes.Code) bool {
	_, known := codes.Explain(code)
	return known
}
