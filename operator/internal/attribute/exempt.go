package attribute

import (
	"fmt"
	"strings"

	"nstpl.dev/nstpl/operator/attributes"
)

// Exempt lists the users and groups to whom the rules do not apply: the operator, since the authors of its templates
// were checked, and the controllers of Kubernetes, which copy attributes and clean up.
type Exempt struct {
	Users, Groups []string
}

func (e Exempt) includes(who attributes.Requester) bool {
	for _, name := range e.Users {
		if who.Is(attributes.Subject{Name: name}) {
			return true
		}
	}
	for _, name := range e.Groups {
		if who.Is(attributes.Subject{Group: true, Name: name}) {
			return true
		}
	}
	return false
}

// condition returns an expression that excludes the requests of exempt users, unless they set the marker.
func (e Exempt) condition(marker string) string {
	return fmt.Sprintf(
		"!(request.userInfo.username in %s || request.userInfo.?groups.orValue([]).exists(group, group in %s)) || "+
			"object != null && %q in object.metadata.?annotations.orValue({})",
		celList(e.Users), celList(e.Groups), marker)
}

func celList(values []string) string {
	quoted := make([]string, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, fmt.Sprintf("%q", value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
