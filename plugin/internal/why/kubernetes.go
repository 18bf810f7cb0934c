package why

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// namedQuota matches the message about a ResourceQuota without room.
var namedQuota = regexp.MustCompile(
	`exceeded quota: ([a-z0-9][a-z0-9.-]*), requested: (.+?), used: (.+?), limited: ([^\s,]+(?:,[^\s,]+)*)`)

// failedWebhook matches the message about a webhook that does not answer.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

// limitInMessage matches the limit in the message about a LimitRange.
var limitInMessage = regexp.MustCompile(
	`((minimum|maximum) (\S+) usage|(\S+) max limit to request ratio) per (\w+) is ([^,. ]+)`)

// denials are the messages of Kubernetes that users take for those of nstpl, since a template may declare what decides.
var denials = []struct {
	pattern *regexp.Regexp
	explain func(e *explainer, ctx context.Context, a *answer, match []string)
}{
	{namedQuota, (*explainer).exceededQuota},
	{regexp.MustCompile(`failed quota: ([a-z0-9][a-z0-9.-]*): must specify (.+?)(?:\n|$)`), (*explainer).unspecifiedQuota},
	{limitInMessage, (*explainer).limitRange},
	{regexp.MustCompile(`violates PodSecurity "([a-z]+):([^"]+)": ([^\n]+)`), (*explainer).podSecurity},
	{regexp.MustCompile(`(?: "([^"]+)" is forbidden: )?User "([^"]+)" cannot (\S+) resource "([^"]+)" in API group ` +
		`"([^"]*)"(?: in the namespace "([^"]+)"| at the cluster scope)?`), (*explainer).noPermission},
	{failedWebhook, (*explainer).noWebhook},
	{regexp.MustCompile(`admission webhook "([^"]+)" denied the request`), (*explainer).otherWebhook},
	{regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request`),
		(*explainer).otherPolicy},
}

// kubernetes explains a message without a code of nstpl.
func (e *explainer) kubernetes(ctx context.Context, text string) (answer, error) {
	for _, denial := range denials {
		if match := denial.pattern.FindStringSubmatch(text); match != nil {
			a := answer{Subject: "message"}
			a.add(labelMessage, reasonIn(text))
			denial.explain(e, ctx, &a, match)
			e.addOperator(ctx, &a)
			return a, nil
		}
	}
	if a, isKnown := knownDenial(text); isKnown {
		e.addOperator(ctx, &a)
		return a, nil
	}
	return answer{}, errUnexplained
}

// isOfKubernetes reports whether kubernetes would explain a message.
func isOfKubernetes(text string) bool {
	for _, denial := range denials {
		if denial.pattern.MatchString(text) {
			return true
		}
	}
	_, isKnown := knownDenial(text)
	return isKnown
}

func (e *explainer) exceededQuota(ctx context.Context, a *answer, match []string) {
	a.Summary = fmt.Sprintf("Kubernetes denies the request: ResourceQuota %s has no room for %s", match[1], match[2])
	addQuotaDecision(a, match)
	a.add(labelRemedy, "Request less, or delete objects in the namespace.")
	e.addQuota(ctx, a, match[1])
}

// addQuotaDecision adds the ResourceQuota in a match of namedQuota.
func addQuotaDecision(a *answer, match []string) {
	a.add(labelDecidedBy, fmt.Sprintf("ResourceQuota %s: of %s, %s were used", match[1], match[4], match[3]))
}

func (e *explainer) unspecifiedQuota(ctx context.Context, a *answer, match []string) {
	a.Summary = fmt.Sprintf("Kubernetes denies the request: ResourceQuota %s requires that pods specify %s", match[1],
		strings.TrimSpace(match[2]))
	a.add(labelDecidedBy, "ResourceQuota "+match[1])
	a.add(labelRemedy, "Set these requests and limits in each container, or ask for a LimitRange with defaults.")
	e.addQuota(ctx, a, match[1])
}

// addQuota adds the usage of a ResourceQuota, and who declares it.
func (e *explainer) addQuota(ctx context.Context, a *answer, name string) {
	live := e.addObject(ctx, a, "resourcequotas", name)
	if live == nil {
		return
	}
	hard, _, _ := unstructured.NestedStringMap(live.Object, "status", "hard")
	used, _, _ := unstructured.NestedStringMap(live.Object, "status", "used")
	var usage []string
	for _, resource := range slices.Sorted(maps.Keys(hard)) {
		usage = append(usage, fmt.Sprintf("%s %s/%s", resource, used[resource], hard[resource]))
	}
	if len(usage) > 0 {
		a.add(labelNow, "ResourceQuota "+name+" has "+strings.Join(usage, ", "))
	}
}

// addObject adds who declares and who changed an object that decided, and who can change the decision. It returns the
// object, or nil if it cannot be read.
func (e *explainer) addObject(ctx context.Context, a *answer, resource, name string) *unstructured.Unstructured {
	if e.cluster == nil {
		return nil
	}
	mapping, err := e.mappingOf(ctx, resource)
	if e.isUnread(err, resource, "") || err != nil {
		return nil
	}
	if _, err := e.get(ctx, mapping, e.namespace, name); apierrors.IsNotFound(err) {
		e.noteOnce("%s %q not found in namespace %s: name the namespace of the request with -n", resource, name,
			e.namespace)
		return nil
	}
	explained, live, err := e.object(ctx, mapping, e.namespace, name)
	if err != nil {
		e.isUnread(err, resource, "")
		return nil
	}
	e.noteAssumed()
	a.include(explained)
	a.add(labelState, explained.Summary)
	if live == nil {
		return nil
	}
	if e.isAssumed { // another object may have decided
		return live
	}
	if template := live.GetLabels()[v1alpha1.TemplateNameLabel]; template != "" && explained.leftAlone == "" &&
		explained.unpopulated == "" {
		a.add(labelAdministrator, fmt.Sprintf("Change template %s, or first exempt the object with %s, and then "+
			"change it. The operator reverts changes of an object that is not exempt, unless driftPolicy of the template is "+
			"Report.", template, explained.exemptCommand(template)))
	} else {
		a.add(labelAdministrator, "Change "+explained.Subject+".")
	}
	return live
}

func (e *explainer) limitRange(ctx context.Context, a *answer, match []string) {
	a.Summary = "Kubernetes denies the request because of a LimitRange: " + match[0]
	a.add(labelRemedy, "Change the requests and limits that the message names.")
	if e.cluster == nil {
		return
	}
	ranges, err := cluster.List[corev1.LimitRange](ctx, e.cluster,
		corev1.SchemeGroupVersion.WithResource("limitranges"), e.namespace, metav1.ListOptions{})
	if e.isUnread(err, "limitranges in namespace "+e.namespace, "") || err != nil {
		return
	}
	isFound := false
	for _, limits := range ranges {
		if !hasLimit(limits, match) {
			continue
		}
		isFound = true
		e.addObject(ctx, a, "limitranges", limits.Name)
		if !e.isAssumed {
			a.add(labelDecidedBy, "LimitRange "+limits.Name)
		}
	}
	if !isFound {
		e.noteOnce("no LimitRange in namespace %s has this limit now: name the namespace of the request with -n",
			e.namespace)
	}
}

// hasLimit reports whether a LimitRange has the limit in a message: a match of limitInMessage.
func hasLimit(limits *corev1.LimitRange, match []string) bool {
	bound, required, ratioOf, kind, value := match[2], match[3], match[4], match[5], match[6]
	return slices.ContainsFunc(limits.Spec.Limits, func(item corev1.LimitRangeItem) bool {
		values, name := item.MaxLimitRequestRatio, ratioOf
		switch bound {
		case "minimum":
			values, name = item.Min, required
		case "maximum":
			values, name = item.Max, required
		}
		quantity, isLimited := values[corev1.ResourceName(name)]
		return string(item.Type) == kind && isLimited && quantity.String() == value
	})
}

func (e *explainer) podSecurity(ctx context.Context, a *answer, match []string) {
	a.Summary = fmt.Sprintf("Kubernetes denies the pod by the Pod Security Standard %s: %s", match[1], match[3])
	a.add(labelDecidedBy, "Pod Security Admission, by the label "+enforceLabel+" of the namespace")
	a.add(labelRemedy, "Change the fields that the message names.")
	ns := &corev1.Namespace{}
	if e.cluster != nil {
		live, err := e.cluster.Namespace(ctx, e.namespace)
		if !e.isUnread(err, "namespace/"+e.namespace, "") && err == nil {
			e.noteAssumed()
			ns = live
			a.add(labelNow, fmt.Sprintf("namespace/%s has %s=%s", e.namespace, enforceLabel, ns.Labels[enforceLabel]))
		}
	}
	a.add(labelAdministrator, "If the pod needs these fields, "+changeEnforced(ns)+" It is not "+
		"a SecurityContextConstraint of nstpl.")
}

// enforceLabel is the label of a namespace with the Pod Security Standard that its pods must comply with.
const enforceLabel = "pod-security.kubernetes.io/enforce"

// changeEnforced says how an administrator changes the Pod Security Standard of a namespace, so that the change stays.
func changeEnforced(ns *corev1.Namespace) string {
	change := "change the label " + enforceLabel + " of the namespace"
	recorded, isRecorded := populate.RecordedMetadata(ns.Annotations)[render.MetadataKey{
		Field: render.Labels, Key: enforceLabel,
	}]
	switch tree := ns.Labels[v1alpha1.TreeLabel]; {
	case isRecorded: // also if the template does not declare the label any more
		a := answer{Subject: "namespace/" + ns.Name, Namespace: ns.Name}
		return fmt.Sprintf("%s. Template %s has set it: if the template still declares it, change its namespaceMetadata "+
			"instead, or first exempt the namespace with %s.", change, recorded.Template, a.exemptCommand(recorded.Template))
	case tree != "":
		return fmt.Sprintf("%s: in the files of the tree %s, if they set it.", change, tree)
	}
	return change + "."
}

func (e *explainer) noPermission(ctx context.Context, a *answer, match []string) {
	name, user, verb, resource, group, namespace := match[1], match[2], match[3], match[4], match[5], match[6]
	where := "in the whole cluster"
	if namespace != "" {
		where = "in namespace " + namespace
	}
	a.Summary = fmt.Sprintf("user %s has no permission to %s %s %s: no Role or ClusterRole that is bound to the user "+
		"grants it", user, verb, resource, where)
	a.add(labelDecidedBy, "the authorizer of the API server, which is usually RBAC. It is not a denial of nstpl")
	kind, subresource, isSubresource := strings.Cut(resource, "/")
	grouped := strings.TrimSuffix(kind+"."+group, ".")
	isOwn, isRead := group == v1alpha1.GroupVersion.Group, slices.Contains([]string{"get", "list", "watch"}, verb)
	switch {
	case isOwn && isRead:
		a.add(labelRemedy, "Ask an administrator for "+readerRole(resource, namespace)+".")
	case isOwn && resource == v1alpha1.TemplateExemptions.Resource && !strings.HasPrefix(verb, "delete"):
		a.add(labelRemedy, fmt.Sprintf("Ask an administrator for the verb %s on %s, and for the verb %s on the "+
			"template.", verb, resource, v1alpha1.VerbExempt))
		a.add(labelAdministrator, "Bind the ClusterRole nstpl-exempt by a ClusterRoleBinding: it grants both, for all "+
			"templates.")
		return
	default:
		a.add(labelRemedy, fmt.Sprintf("Ask an administrator for the verb %s on %s. '%s' shows whether you have it.",
			verb, resource, canI(verb, grouped, subresource, namespace)))
	}
	if namespace != "" {
		a.add(labelAdministrator, "Bind a role in the namespace, for example by a RoleBinding in a template. "+
			"A new namespace has the RoleBindings of templates once it is populated: "+
			"see 'kubectl nstpl why namespace/"+namespace+"'.")
	}
	if namespace != "" && name != "" && !isRead && !isSubresource {
		e.addTemplateOf(ctx, a, grouped, namespace, name)
	}
}

// canI returns the command that asks whether a user has a permission, in all namespaces if namespace is empty. Without
// -A, it would ask about the namespace of the context, and a slash in a resource would begin the name of an object.
func canI(verb, resource, subresource, namespace string) string {
	command := fmt.Sprintf("kubectl auth can-i %s %s", verb, resource)
	if subresource != "" {
		command += " --subresource=" + subresource
	}
	if namespace == "" {
		return command + " -A"
	}
	return command + " -n " + namespace
}

// addTemplateOf adds which template declares an object that a user may not write: with the permission alone, the
// operator would revert what the user writes, unless driftPolicy of the template is Report.
func (e *explainer) addTemplateOf(ctx context.Context, a *answer, resource, namespace, name string) {
	if e.cluster == nil {
		return
	}
	mapping, err := e.mappingOf(ctx, resource)
	if err != nil {
		return // the answer does not depend on it
	}
	live, err := e.get(ctx, mapping, namespace, name)
	if err != nil || live.GetLabels()[v1alpha1.TemplateNameLabel] == "" {
		return
	}
	explained, _, err := e.object(ctx, mapping, namespace, name)
	if err != nil || explained.leftAlone != "" || explained.unpopulated != "" {
		return
	}
	a.include(explained)
	a.add(labelState, explained.Summary)
	for _, f := range explained.Facts {
		if f.Label == labelRemedy {
			a.add(f.Label, f.Text)
		}
	}
}

func (e *explainer) noWebhook(_ context.Context, a *answer, match []string) {
	a.add(labelDecidedBy, "the API server, because the webhook "+match[1]+" does not answer")
	if !isOurWebhook(match[1]) {
		a.Summary = "a webhook that is not of nstpl does not answer: " + match[1]
		a.add(labelRemedy, "Ask an administrator of the program to which the webhook belongs.")
		return
	}
	a.Summary = "the API server does not reach the operator of nstpl, so it denies the request"
	a.add(labelState, "until the operator answers, "+deniedWithout(match[1]))
	a.add(labelRemedy, "Repeat the request later.")
	a.add(labelAdministrator, "'kubectl nstpl check' says why the operator is not reached. What does not work meanwhile "+
		"is in the manual, under \"When something is down\" in operations.md.")
}

func (e *explainer) otherWebhook(_ context.Context, a *answer, match []string) {
	if isOurWebhook(match[1]) {
		a.Summary = "the operator of nstpl denies the request, but the message has no code"
		a.add(labelRemedy, "Paste the whole message. Operators before this version write no codes.")
	} else {
		a.Summary = "a webhook that is not of nstpl denies the request: " + match[1]
		a.add(labelRemedy, "Ask an administrator of the program to which the webhook belongs.")
	}
	a.add(labelDecidedBy, "the webhook "+match[1])
}

func (e *explainer) otherPolicy(_ context.Context, a *answer, match []string) {
	a.Summary = "a ValidatingAdmissionPolicy that is not of nstpl denies the request: " + match[1]
	a.add(labelRemedy, "Do what its message says, or ask an administrator of the policy.")
	if strings.HasPrefix(match[1], "nstpl-") {
		a.Summary = "a policy of nstpl denies the request, but the message has no code: " + match[1]
		a.add(labelRemedy, "Paste the whole message.")
	}
	a.add(labelDecidedBy, fmt.Sprintf("ValidatingAdmissionPolicy %s, by its binding %s", match[1], match[2]))
}

// deniedWithout says which requests are denied while a webhook of the operator does not answer.
func deniedWithout(webhook string) string {
	name, _, _ := strings.Cut(webhook, ".")
	switch feature, _, _ := strings.Cut(name, "-"); {
	case feature == "scc":
		return "new pods, changes of their specs, labels and annotations, exec and attach are denied in all namespaces that " +
			"are not exempt from SecurityContextConstraints"
	case feature == "hold":
		return "writes into namespaces that are being initialized are denied, except for users with the verb initialize"
	case feature == "attributes":
		return "requests that touch a protected attribute are denied, except for exempt users"
	case feature == "quota":
		return "creations and updates that the quota of a policy space limits are denied, and deletions are allowed"
	case feature == "namespace":
		return "no namespace is put into a policy space that limits namespaces, into one below it or, if there are more than " +
			"500 of them, into any policy space"
	case feature == "template" || feature == "initializers" || feature == "hierarchy" || name == "attribute-rules" ||
		name == "self-service-parents":
		return "new and changed policies of this kind are denied"
	case feature == "self":
		return "namespaces in policy spaces, or all namespaces with --self-service-only, cannot be created or relabeled, " +
			"except by users who may patch all policy spaces"
	}
	return "the requests that this webhook checks are denied"
}

// isOurWebhook reports whether a webhook belongs to nstpl.
func isOurWebhook(name string) bool { return strings.HasSuffix(name, "."+v1alpha1.GroupVersion.Group) }
