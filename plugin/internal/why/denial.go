package why

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// errUnexplained is the error for a message that neither nstpl nor a part of Kubernetes that why knows has written.
var errUnexplained = errors.New("the message has no code of nstpl, and is none of the messages of Kubernetes that this " +
	"command knows: search for its words in the documentation of the component that it names")

// startOfError matches the beginning of lines with which kubectl begins an error.
var startOfError = regexp.MustCompile(`^(?:Error from server|[Ee]rror: |The \S+ "[^"]*" is invalid)`)

// restOfError matches the line with which kubectl apply goes on after it has printed what it sent.
var restOfError = regexp.MustCompile(`^(?:from server )?for: "`)

// denialsIn returns the parts of a text that each have one denial at most. The API server and kubectl write several,
// each in lines of its own. One of nstpl ends in its code at the end of a line.
func denialsIn(text string) []string {
	var found []string
	start, end := 0, 0
	cut := func() {
		if part := strings.TrimSpace(text[start:end]); part != "" && !slices.Contains(found, part) {
			found = append(found, part)
		}
		start = end
	}
	for line := range strings.Lines(text) {
		if startOfError.MatchString(line) || isOfKubernetes(line) && !restOfError.MatchString(line) {
			cut()
		}
		if end += len(line); codes.Trim(line) != line {
			cut()
		}
	}
	cut()
	return found
}

// messages explains each denial in a text. It notes errors that are not explained, unless it explains none: then it
// returns an error.
func (e *explainer) messages(
	ctx context.Context, text string, explain func(context.Context, string) (answer, error),
) ([]answer, error) {
	var answers []answer
	var errs []error
	failure := errUnexplained
	for _, denial := range denialsIn(text) {
		explained, err := explain(ctx, denial)
		switch {
		case err == nil:
			answers = append(answers, explained)
		case !errors.Is(err, errUnexplained):
			failure = err
			errs = append(errs, err)
		case startOfError.MatchString(denial): // and not a line such as "namespace/a created"
			errs = append(errs, fmt.Errorf("not explained: %s", denial))
		}
	}
	if len(answers) == 0 {
		return nil, failure
	}
	for _, err := range errs {
		e.noteOnce("%v", err)
	}
	return answers, nil
}

// located explains the message of a request in a namespace that the message may name.
func (e *explainer) located(ctx context.Context, text string) (answer, error) {
	defer func(given string) { e.namespace = given }(e.namespace)
	e.locate(text)
	return e.message(ctx, text)
}

// message explains an error message: by its codes, or by its words if it has none.
func (e *explainer) message(ctx context.Context, text string) (answer, error) {
	found := codes.Find(text)
	if len(found) == 0 {
		return e.kubernetes(ctx, text)
	}
	a := answer{Subject: "message", Codes: found}
	explanation, known := codes.Explain(found[0])
	if !known {
		return a, fmt.Errorf("this version of the plugin does not know the code %s: install a newer one", found[0])
	}
	a.Summary = fmt.Sprintf("%s: %s", found[0], explanation.Meaning)
	a.add(labelMessage, reasonIn(text))
	if match := namedQuota.FindStringSubmatch(text); match != nil { // the innermost quota comes first
		addQuotaDecision(&a, match)
	}
	addExplanation(&a, found[0])
	if match := failedNamespace.FindStringSubmatch(text); match != nil && found[0] == codes.PopulationFailed {
		addFailureRemedy(&a, match[1], match[2])
	}
	addGrant(&a, text)
	for _, code := range found[1:] {
		if quoted, known := codes.Explain(code); known {
			a.add(labelState, fmt.Sprintf("the message quotes %s: %s", code, quoted.Meaning))
			a.add(labelDecidedBy, quoted.DecidedBy)
		}
	}
	for _, code := range found {
		e.addCurrent(ctx, &a, code, text)
	}
	e.addOperator(ctx, &a)
	return a, nil
}

// What messages name.
var (
	heldNamespace = regexp.MustCompile(`\bnamespace ([a-z0-9-]+) ` +
		`(?:is being initialized|has just been initialized|was deleted while|could not be populated)`)
	failedNamespace = regexp.MustCompile(`\bnamespace ([a-z0-9-]+) could not be populated, and writes into it are denied ` +
		`until [^:]+: ([A-Za-z]+): `)
	namedSpace    = regexp.MustCompile(`\bpolicyspace "?([a-z0-9-]+)"?`)
	enteredSpace  = regexp.MustCompile(`\b(?:namespaces|policyspaces) into policyspace (\S+?)(?: or|:)`)
	namedTemplate = regexp.MustCompile(`\b(?:NamespaceTemplate|template) ([a-z0-9][a-z0-9.-]*[a-z0-9])`)
	namedRule     = regexp.MustCompile(`\((ProtectedAttribute|ClusterProtectedAttribute) ([^\s()]+)\)`)
	deniedPod     = regexp.MustCompile(`\bpod ([a-z0-9-]+)/\S*: no SecurityContextConstraints admit it ` +
		`for user ("(?:[^"\\]|\\.)*")`)
	deniedConstraint = regexp.MustCompile(`(?:^|\n)\s*- constraint ([a-z0-9][a-z0-9.-]*): `)
)

// maxNamed limits how many objects are looked up because a message names them: each takes a request.
const maxNamed = 10

// addCurrent adds the current state of what a message with a code names.
func (e *explainer) addCurrent(ctx context.Context, a *answer, code codes.Code, text string) {
	if e.cluster == nil {
		return
	}
	switch code {
	case codes.Held, codes.PopulationFailed:
		if match := heldNamespace.FindStringSubmatch(text); match != nil {
			e.addNamespaceNow(ctx, a, match[1])
		}
	case codes.QuotaExceeded, codes.QuotaUncounted:
		if match := namedQuota.FindStringSubmatch(text); match != nil {
			e.addQuota(ctx, a, match[1])
		}
		for _, match := range namedSpace.FindAllStringSubmatch(text, maxNamed) {
			e.addSpaceNow(ctx, a, match[1])
		}
	case codes.PolicySpaceUse:
		if match := enteredSpace.FindStringSubmatch(text); match != nil {
			e.addMissingSpace(ctx, a, match[1])
		}
	case codes.PolicySpaceInUse:
		if match := namedSpace.FindStringSubmatch(text); match != nil {
			a.fill("tree NAME", "tree "+match[1])
			e.addSpaceNow(ctx, a, match[1])
		}
	case codes.ConstraintDenied:
		if match := deniedPod.FindStringSubmatch(text); match != nil && e.isCaller(ctx, match[2]) {
			e.addConstraintsNow(ctx, a, match[1], deniedConstraint.FindAllStringSubmatch(text, maxNamed))
		}
	case codes.AttributeProtected:
		for _, match := range namedRule.FindAllStringSubmatch(text, maxNamed) {
			e.addRuleNow(ctx, a, match[1], match[2])
		}
	case codes.TemplateUse:
		for _, match := range namedTemplate.FindAllStringSubmatch(text, maxNamed) {
			allowed, err := e.cluster.May(ctx, v1alpha1.VerbUse, v1alpha1.NamespaceTemplates, match[1], "")
			if !e.isUnread(err, "your own rights", "") {
				a.add(labelNow, fmt.Sprintf("you %s use template %s", may(allowed), match[1]))
			}
		}
	default: // the explanation of the code says enough
	}
}

// isCaller reports whether a message is about the caller. What the caller may do does not matter for other users, such
// as the controller that creates the pods of a workload.
func (e *explainer) isCaller(ctx context.Context, quoted string) bool {
	caller, err := e.cluster.Caller(ctx)
	return err == nil && strconv.Quote(caller.Name) == quoted
}

func may(allowed bool) string {
	if allowed {
		return "may"
	}
	return "may not"
}

// addNamespaceNow adds the state of a namespace that was held, or could not be populated.
func (e *explainer) addNamespaceNow(ctx context.Context, a *answer, name string) {
	now, err := e.namespaceAnswer(ctx, name)
	if e.isUnread(err, "namespace/"+name, "") {
		return
	}
	a.fill("namespace/NAME", "namespace/"+name)
	a.add(labelNow, now.Summary)
	for _, f := range now.Facts {
		if f.Label == labelState || f.Label == labelCreatedBy || f.Label == labelTemplate {
			a.add(f.Label, f.Text)
		}
	}
}

// addSpaceNow adds the usage of a policy space.
func (e *explainer) addSpaceNow(ctx context.Context, a *answer, name string) {
	a.fill("policyspace NAME", "policyspace "+name)
	space, err := e.cluster.PolicySpace(ctx, name)
	if apierrors.IsNotFound(err) {
		a.add(labelNow, "policyspace "+name+" does not exist")
		return
	}
	if err != nil {
		e.isUnread(err, "policyspaces, so the usage is not shown", viewerRole)
		return
	}
	text := fmt.Sprintf("policyspace %s has %s", name, output.Count(int(space.Status.Namespaces), "namespace"))
	if space.Status.Quota != "" {
		text += "; usage: " + space.Status.Quota
	}
	a.add(labelNow, text)
	if tree := space.Labels[v1alpha1.TreeLabel]; tree != "" {
		a.add(labelDeclaredBy, "the tree "+tree+" declares policyspace "+name)
	}
}

// addMissingSpace adds that a policy space does not exist, if so. The message of the API server is the same, so that it
// does not tell who guesses names. The right to use it can help as well: a namespace can leave a deleted one.
func (e *explainer) addMissingSpace(ctx context.Context, a *answer, name string) {
	if _, err := e.cluster.PolicySpace(ctx, name); apierrors.IsNotFound(err) {
		a.add(labelNow, "policyspace "+name+" does not exist")
		a.add(labelRemedy, "To put something into policyspace "+name+", correct its name, or create it first.")
	}
}

// addConstraintsNow adds which of the constraints in a denial the caller may use. Every user may ask for the verb use.
// Of a constraint that grants it by its users and groups, that is unknown to a caller who may not read constraints.
func (e *explainer) addConstraintsNow(ctx context.Context, a *answer, namespace string, constraints [][]string) {
	var usable, others []string
	asked := map[string]bool{}
	for _, match := range constraints {
		if asked[match[1]] { // a constraint has a reason for each field
			continue
		}
		asked[match[1]] = true
		allowed, err := e.cluster.May(ctx, v1alpha1.VerbUse, v1alpha1.SecurityContextConstraintses, match[1], namespace)
		switch {
		case e.isUnread(err, "your own rights", ""):
			return
		case allowed:
			usable = append(usable, match[1])
		default:
			others = append(others, match[1])
		}
	}
	if len(others) > 0 {
		included, remaining, err := e.including(ctx, others)
		if e.isUnread(err, "securitycontextconstraints, so whether their users and groups include you is not shown",
			viewerRole) {
			included, remaining = nil, nil
		}
		usable, others = append(usable, included...), remaining
	}
	if len(usable) > 0 {
		a.add(labelNow, fmt.Sprintf("you may use %s in namespace %s", strings.Join(usable, ", "), namespace))
	}
	if len(others) > 0 {
		a.add(labelNow, fmt.Sprintf("you may not use %s in namespace %s", strings.Join(others, ", "), namespace))
	}
}

// including divides the names of constraints into those whose users or groups include the caller, and the others. It
// leaves out names of constraints that do not exist.
func (e *explainer) including(ctx context.Context, names []string) (included, others []string, err error) {
	constraints, err := e.cluster.Constraints(ctx)
	if err != nil {
		return nil, nil, err
	}
	caller, err := e.cluster.Caller(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, constraint := range constraints {
		switch {
		case !slices.Contains(names, constraint.Name):
		case scc.Lists(constraint, caller):
			included = append(included, constraint.Name)
		default:
			others = append(others, constraint.Name)
		}
	}
	return included, others, nil
}

// addRuleNow adds what a rule about an attribute says.
func (e *explainer) addRuleNow(ctx context.Context, a *answer, kind, named string) {
	a.add(labelDecidedBy, kind+" "+named)
	resource := v1alpha1.ClusterProtectedAttributes
	namespace, name, isNamespaced := strings.Cut(named, "/")
	if isNamespaced {
		resource = v1alpha1.ProtectedAttributes
	} else {
		namespace, name = "", named
	}
	object, err := e.cluster.Dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, getOptions)
	if apierrors.IsNotFound(err) {
		a.add(labelNow, fmt.Sprintf("%s %s no longer exists", kind, named))
		return
	}
	if err != nil {
		e.isUnread(err, strings.ToLower(kind)+"s, so the rule is not shown",
			readerRole(resource.Resource, namespace))
		return
	}
	rule, err := cluster.Decode[v1alpha1.ProtectedAttribute](object) // a ClusterProtectedAttribute has the same fields
	if err != nil {
		e.noteOnce("%s %s: %v", kind, named, err)
		return
	}
	text := fmt.Sprintf("%s %s permits %s %s to change %s %s", kind, named, rule.RoleRef.Kind, rule.RoleRef.Name,
		strings.ToLower(string(rule.AttributeKind)), rule.AttributeName)
	if rule.GuardDeletion {
		text += ", and to delete objects that have it"
	}
	a.add(labelNow, text)
}
