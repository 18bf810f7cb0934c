package why

import "regexp"

// known are denials of Kubernetes whose explanation needs nothing from the cluster. The texts refer to the groups of
// the pattern as $1, $2.
var known = []struct {
	pattern                                 *regexp.Regexp
	summary, decidedBy, user, administrator string
}{
	{
		pattern:       regexp.MustCompile(`User "([^"]+)" cannot (\S+) path "([^"]+)"`),
		summary:       "user $1 has no permission to $2 the path $3: no ClusterRole that is bound to the user grants it",
		decidedBy:     "the authorizer of the API server, which is usually RBAC. It is not a denial of nstpl",
		user:          "Ask an administrator for the verb $2 on the path $3.",
		administrator: "Bind a ClusterRole with nonResourceURLs by a ClusterRoleBinding.",
	},
	{
		pattern:       regexp.MustCompile(`user "([^"]+)" \(groups=.*\) is attempting to grant RBAC permissions not currently held`),
		summary:       "Kubernetes denies the request: user $1 would grant rights that the user does not have",
		decidedBy:     "RBAC in the API server, which protects itself from escalation. It is not a denial of nstpl",
		user:          "Ask an administrator to grant the rights, or to give them to you first.",
		administrator: "Grant the rights yourself. The verbs escalate and bind would let the user grant any right.",
	},
	{
		pattern:       regexp.MustCompile(`unable to create new content in namespace (\S+) because it is being terminated`),
		summary:       "Kubernetes denies the request: namespace $1 is being deleted",
		decidedBy:     "the admission plugin NamespaceLifecycle of the API server",
		user:          "Create the object in another namespace, or wait until the namespace is gone and create it again.",
		administrator: "If it lasts, 'kubectl get namespace $1 -o yaml' shows in the conditions which objects remain.",
	},
	{
		pattern:   regexp.MustCompile(`error looking up service account ([^/\s]+)/(\S+): serviceaccount "[^"]+" not found`),
		summary:   "Kubernetes denies the pod: its service account $2 does not exist in namespace $1",
		decidedBy: "the admission plugin ServiceAccount of the API server",
		user: "Create the service account, or correct serviceAccountName of the pod. In a new namespace, " +
			"kube-controller-manager creates the service account default within a second.",
	},
	{
		pattern: regexp.MustCompile(`Apply failed with \d+ conflicts?: (?s:.*)conflicts? with "nstpl"`),
		summary: "the server-side apply conflicts with the operator of nstpl, which applied fields that a template " +
			"declared",
		decidedBy: "the API server, which records in managedFields who declares a field",
		user: "Leave these fields out, or ask an administrator to change the template. 'kubectl nstpl why TYPE/NAME' " +
			"names it.",
		administrator: "Change the template. With --force-conflicts the apply passes, and the operator may revert " +
			"it: 'kubectl nstpl why TYPE/NAME' shows what it does with it.",
	},
	{
		pattern:   regexp.MustCompile(`no PriorityClass with name (\S+) was found`),
		summary:   "Kubernetes denies the pod: PriorityClass $1 does not exist",
		decidedBy: "the admission plugin Priority of the API server",
		user:      "Use a PriorityClass that 'kubectl get priorityclasses' lists, or ask an administrator to create it.",
	},
	{
		pattern:   regexp.MustCompile(`\bnamespaces "([^"]+)" not found`),
		summary:   "namespace $1 does not exist",
		decidedBy: "the API server",
		user:      "Correct the name of the namespace, or create it with 'kubectl nstpl create $1'.",
	},
	{
		pattern:   regexp.MustCompile(`([A-Z][\w.]*) "([^"]+)" is invalid: `),
		summary:   "the API server rejects $1 $2: a field is invalid",
		decidedBy: "the type of the kind: its schema and its rules",
		user:      "Correct the field that the message names. 'kubectl explain' shows the types.",
	},
}

// knownDenial explains a denial in known. It reports false if text is none of them.
func knownDenial(text string) (answer, bool) {
	for _, k := range known {
		match := k.pattern.FindStringSubmatchIndex(text)
		if match == nil {
			continue
		}
		fill := func(template string) string { return string(k.pattern.ExpandString(nil, template, text, match)) }
		a := answer{Subject: "message", Summary: fill(k.summary)}
		a.add(labelMessage, reasonIn(text))
		a.add(labelDecidedBy, fill(k.decidedBy))
		a.add(labelRemedy, fill(k.user))
		a.add(labelAdministrator, fill(k.administrator))
		return a, true
	}
	return answer{}, false
}
