package why

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// grant is the permission that a message of nstpl names.
type grant struct {
	user, verb string
	// resource is the plural name of the resource with its API group, such as policyspaces.policy.nstpl.dev.
	resource string
	// names are those of the objects, or empty for all.
	names []string
}

var (
	deniedUser = regexp.MustCompile(`\buser (\S+) (?:may not|needs)\b`)
	namedVerb  = regexp.MustCompile(`\b(?:ask for|needs) the verb ([a-z]+) on (?:all )?` +
		`([a-z]+(?:/[a-z0-9.-]*[a-z0-9])?(?: and [a-z]+/[a-z0-9.-]*[a-z0-9])*)(?: in the API group ([a-z.]+[a-z]))?`)
	notInNames = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)
	notInWords = regexp.MustCompile(`[^a-zA-Z0-9@%+=:,./_-]`)
)

// grantIn returns the permission that a message names. It reports false if it names none, or not for whom.
func grantIn(message string) (grant, bool) {
	user, verb := deniedUser.FindStringSubmatch(message), namedVerb.FindStringSubmatch(message)
	if user == nil || verb == nil {
		return grant{}, false
	}
	g := grant{user: user[1], verb: verb[1]}
	for object := range strings.SplitSeq(verb[2], " and ") {
		resource, name, isNamed := strings.Cut(object, "/")
		g.resource = resource
		if isNamed {
			g.names = append(g.names, name)
		}
	}
	if group := verb[3]; group != "" {
		g.resource += "." + group
	}
	return g, true
}

// what returns the permission in words: "the verb use on policyspaces/payments".
func (g grant) what() string {
	resource, _, _ := strings.Cut(g.resource, ".")
	if len(g.names) == 0 {
		return "the verb " + g.verb + " on " + resource
	}
	return "the verb " + g.verb + " on " + resource + "/" + strings.Join(g.names, " and "+resource+"/")
}

// commands returns the commands that grant the permission. The role is a manifest, since "kubectl create clusterrole"
// rejects the verb use. It may exist, for another user.
func (g grant) commands() string {
	resource, group, _ := strings.Cut(g.resource, ".")
	role := strings.Join([]string{"nstpl", g.verb, resource}, "-")
	names := ""
	if len(g.names) > 0 {
		role += "-" + strings.Join(g.names, ":") // names of objects contain "-" and ".", but no ":"
		scalars := make([]string, 0, len(g.names))
		for _, name := range g.names {
			scalars = append(scalars, yamlText(name))
		}
		names = "resourceNames: [" + strings.Join(scalars, ", ") + "], "
	}
	subject := notInNames.ReplaceAllString(g.user, "-")
	return fmt.Sprintf("echo '{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, "+
		"rules: [{apiGroups: [%q], resources: [%s], %sverbs: [%s]}]}' | kubectl apply -f -\n"+
		"kubectl create clusterrolebinding %s-%s --clusterrole=%s %s",
		role, group, resource, names, g.verb, role, subject, role, subjectFlag(g.user))
}

// yamlText returns the name of an object as YAML. A name such as 123 or true is quoted, since it would not be a string.
func yamlText(name string) string {
	var value any
	if err := utilyaml.Unmarshal([]byte(name), &value); err == nil && value == name {
		return name
	}
	return strconv.Quote(name)
}

// subjectFlag returns kubectl's flag for a user or a ServiceAccount.
func subjectFlag(user string) string {
	if account, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		return "--serviceaccount=" + quoted(account)
	}
	return "--user=" + quoted(user)
}

// quoted returns a word of a command for a shell. The names of users can have any characters.
func quoted(word string) string {
	if !notInWords.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// addGrant replaces advice that refers to the message by the permission that the message names, and adds the commands
// that grant it.
func addGrant(a *answer, message string) {
	g, isNamed := grantIn(message)
	if !isNamed {
		return
	}
	a.fill("the verb that the message names", g.what())
	if !slices.Contains([]string{v1alpha1.VerbUse, v1alpha1.VerbOptOut, v1alpha1.VerbExempt}, g.verb) {
		return // a verb that grants more than what the message is about
	}
	a.add(labelAdministrator, fmt.Sprintf("These commands grant user %s %s:\n%s", g.user, g.what(), g.commands()))
}
