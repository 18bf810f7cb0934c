package escalation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Labels of namespaces and Roles in a round.
const (
	// SelectLabel is the label that templates select by. Its value is the name of the round.
	SelectLabel = "test"
	// TierLabel is a label of some namespaces, by which overlays select.
	TierLabel = "tier"
	// RefuseLabel with the value "true" on a namespace or a Role has the API server deny the operator's Roles there, or
	// that Role.
	RefuseLabel = "refuse-roles"
)

// Action is the kind of a step.
type Action string

// The actions of steps.
const (
	// WriteTemplate creates or replaces a template.
	WriteTemplate Action = "write template"
	// DeleteTemplate deletes a template.
	DeleteTemplate Action = "delete template"
	// CreateNamespace creates a namespace.
	CreateNamespace Action = "create namespace"
	// LabelNamespace replaces the labels of a namespace.
	LabelNamespace Action = "label namespace"
	// PutObject creates an object in a namespace.
	PutObject Action = "put object"
	// Settle waits until the operator has nothing left to do.
	Settle Action = "settle"
)

// Step is one request of a round, or a wait.
type Step struct {
	Action Action `json:"action"`
	// User makes the request: the round's author, or an administrator.
	User string `json:"user,omitempty"`
	// Object is a NamespaceTemplate, a Namespace or an object in one.
	Object *unstructured.Unstructured `json:"object,omitempty"`
}

// Round is a random sequence of steps with an author, administrators, templates and namespaces, whose names begin with
// Name.
type Round struct {
	Name   string `json:"name"`
	Author Author `json:"author"`
	Steps  []Step `json:"steps"`
}

// String returns the round as YAML, with long strings cut.
func (r Round) String() string {
	data, err := yaml.Marshal(r)
	if err != nil {
		return err.Error()
	}
	const long = 400
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		if len(line) > long {
			line = fmt.Sprintf("%s… (%d characters)\n", line[:long/2], len(line))
		}
		text.WriteString(line)
	}
	return text.String()
}

// Admin is the name of the administrators' user.
const Admin = "administrator"

// NewRound returns a random round.
func NewRound(random *rand.Rand, name string) Round {
	g := &generator{Rand: random, round: Round{Name: name, Author: Author{Name: name + "-author"}}}
	g.author()
	for i := range 1 + g.IntN(2) {
		g.namespace(i)
	}
	for range 3 + g.IntN(5) {
		g.step()
		if g.chance(40) {
			g.add(Settle, "", nil)
		}
	}
	for _, ns := range g.namespaces {
		ns.SetLabels(g.namespaceLabels(true, ns.GetLabels()))
		g.add(LabelNamespace, Admin, ns)
	}
	g.add(Settle, "", nil)
	return g.round
}

type generator struct {
	*rand.Rand
	round      Round
	namespaces []*unstructured.Unstructured
	// written has the last version of each template by name.
	written map[string]*v1alpha1.NamespaceTemplate
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) name(short string) string { return g.round.Name + "-" + short }

func (g *generator) add(action Action, user string, object *unstructured.Unstructured) {
	g.round.Steps = append(g.round.Steps, Step{action, user, object.DeepCopy()})
}

func newRule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: strings.Fields(verbs), APIGroups: []string{group}, Resources: strings.Fields(resources),
		ResourceNames: names,
	}
}

// author returns an author with random permissions.
func (g *generator) author() {
	templates := newRule("get create update patch delete", v1alpha1.GroupVersion.Group, "namespacetemplates")
	if g.chance(25) { // this author may not change templates of others
		templates = newRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates")
		own := newRule("get update patch delete", v1alpha1.GroupVersion.Group, "namespacetemplates", g.name("b"),
			g.name("d"))
		g.round.Author.Rules = append(g.round.Author.Rules, own)
	}
	rules := []rbacv1.PolicyRule{templates}
	if g.chance(70) {
		rules = append(rules,
			newRule(pick(g, "create patch", "create patch", "create patch delete", "create"), rbacv1.GroupName,
				"roles rolebindings"))
	}
	for _, resource := range []string{"configmaps", "resourcequotas", "serviceaccounts"} {
		if g.chance(50) {
			rules = append(rules,
				newRule(pick(g, "create", "create patch", "create patch delete", "get create patch"), "", resource))
		}
	}
	if g.chance(30) {
		rules = append(rules, newRule(pick(g, "create", "create patch"), "networking.k8s.io", "networkpolicies"))
	}
	for range g.IntN(4) {
		rules = append(rules, g.right())
	}
	if g.chance(15) {
		rules = append(rules, newRule("bind", rbacv1.GroupName, "clusterroles", pick(g, "view", "edit")))
	}
	if g.chance(15) {
		rules = append(rules, newRule("bind", rbacv1.GroupName, "roles", g.name("worker")))
	}
	if g.chance(15) {
		rules = append(rules, newRule("escalate", rbacv1.GroupName, "roles", g.name(pick(g, "worker", "viewer"))))
	}
	g.round.Author.Rules = append(g.round.Author.Rules, rules...)
}

// right returns a random rule of a Role.
func (g *generator) right() rbacv1.PolicyRule {
	return pick(g,
		newRule("get", "", "configmaps"), newRule("get list", "", "pods services"), newRule("get", "", "secrets"),
		newRule("create", "", "pods"),
		newRule("*", "", "configmaps"), newRule("get", "", "configmaps", "settings"),
		newRule("get", "apps", "deployments"),
		newRule("get", "", "pods/log"), newRule("*", "*", "*"),
	)
}

func (g *generator) namespaceLabels(selected bool, old map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range old {
		if key != SelectLabel {
			labels[key] = value
		}
	}
	if selected {
		labels[SelectLabel] = g.round.Name
	}
	return labels
}

// namespace adds the creation of a namespace, and of administrators' objects in it.
func (g *generator) namespace(i int) {
	ns := &unstructured.Unstructured{Object: map[string]any{}}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	ns.SetName(g.name(fmt.Sprintf("n%d", i)))
	labels := map[string]string{}
	if g.chance(50) {
		labels[TierLabel] = "x"
	}
	if g.chance(15) {
		labels[RefuseLabel] = "true"
	}
	ns.SetLabels(g.namespaceLabels(g.chance(30), labels))
	ns.SetAnnotations(map[string]string{v1alpha1.CreatorAnnotation: pick(g, "alice", "worker", "jane@example.com",
		"a b:c")})
	g.namespaces = append(g.namespaces, ns)
	g.add(CreateNamespace, Admin, ns)
	if g.chance(60) {
		g.put(ns, g.role(g.name("worker"), g.right()))
	}
	if g.chance(30) {
		g.put(ns, g.role(g.name(ns.GetName()), g.right()))
	}
	if g.chance(30) {
		g.put(ns, g.binding(pick(g, "team", "grant"),
			rbacv1.RoleRef{Kind: "Role", Name: g.name(pick(g, "worker", "viewer"))}))
	}
	for range g.IntN(3) {
		g.put(ns, g.plain())
	}
	if g.chance(10) {
		g.put(ns, object("v1", "ResourceQuota", "no-roles",
			map[string]any{"hard": map[string]any{"count/roles.rbac.authorization.k8s.io": "0"}}))
	}
}

func (g *generator) put(ns, o *unstructured.Unstructured) {
	put := o.DeepCopy()
	put.SetNamespace(ns.GetName())
	put.SetName(strings.ReplaceAll(put.GetName(), "$(NAMESPACE)", ns.GetName()))
	g.add(PutObject, Admin, put)
}

func object(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// marshal returns the JSON of a value of this package.
func marshal(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// toAny converts a value to the types of unstructured objects.
func toAny(value any) any {
	var out any
	if err := utiljson.Unmarshal([]byte(marshal(value)), &out); err != nil {
		panic(err)
	}
	return out
}

func (g *generator) role(name string, rules ...rbacv1.PolicyRule) *unstructured.Unstructured {
	role := object(rbacv1.SchemeGroupVersion.String(), "Role", name, nil)
	role.Object["rules"] = []any{}
	if len(rules) > 0 {
		role.Object["rules"] = toAny(rules)
	}
	return role
}

func (g *generator) binding(name string, ref rbacv1.RoleRef) *unstructured.Unstructured {
	ref.APIGroup = rbacv1.GroupName
	binding := object(rbacv1.SchemeGroupVersion.String(), "RoleBinding", name, nil)
	binding.Object["roleRef"] = toAny(ref)
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"},
		{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"},
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"},
		{Kind: "ServiceAccount", Name: "builder", Namespace: "kube-system"},
	}
	g.Shuffle(len(subjects), func(i, j int) { subjects[i], subjects[j] = subjects[j], subjects[i] })
	binding.Object["subjects"] = toAny(subjects[:1+g.IntN(2)])
	return binding
}

// plain returns an object that grants no permissions.
func (g *generator) plain() *unstructured.Unstructured {
	switch g.IntN(4) {
	case 0:
		return object("v1", "ResourceQuota", "quota",
			map[string]any{"hard": map[string]any{"pods": fmt.Sprint(1 + g.IntN(9))}})
	case 1:
		account := object("v1", "ServiceAccount", "builder", nil)
		account.SetAnnotations(map[string]string{"example.com/role": fmt.Sprint(g.IntN(9))})
		return account
	case 2:
		policy := object("networking.k8s.io/v1", "NetworkPolicy", "policy",
			map[string]any{"podSelector": map[string]any{}})
		policy.SetAnnotations(map[string]string{"a": fmt.Sprint(g.IntN(9))})
		return policy
	}
	settings := object("v1", "ConfigMap", pick(g, "settings", "of-$(NAMESPACE)"), nil)
	settings.Object["data"] = map[string]any{"value": fmt.Sprint(g.IntN(9))}
	return settings
}

// step adds a request of the author or an administrator.
func (g *generator) step() {
	ns := pick(g, g.namespaces...)
	switch g.IntN(12) {
	case 0, 1, 2, 3:
		g.write(g.round.Author.Name, g.template(pick(g, "b", "d"), g.round.Author.Rules))
	case 4, 5:
		g.write(Admin, g.template(pick(g, "a", "c", "e"), Administrator(Admin).Rules))
	case 6, 7:
		g.changeTemplate()
	case 8, 9:
		_, selected := ns.GetLabels()[SelectLabel]
		ns.SetLabels(g.namespaceLabels(!selected, ns.GetLabels()))
		g.add(LabelNamespace, Admin, ns)
	case 10:
		g.put(ns, g.role(g.name(pick(g, "worker", "viewer", ns.GetName())), g.right()))
	case 11:
		g.put(ns, g.plain())
	}
}

func (g *generator) write(user string, template *v1alpha1.NamespaceTemplate) {
	if g.written == nil {
		g.written = map[string]*v1alpha1.NamespaceTemplate{}
	}
	g.written[template.Name] = template
	g.addTemplate(WriteTemplate, user, template)
}

func (g *generator) addTemplate(action Action, user string, template *v1alpha1.NamespaceTemplate) {
	o := &unstructured.Unstructured{Object: toAny(template).(map[string]any)}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	delete(o.Object, "status")
	g.add(action, user, o)
}

// changeTemplate has the author change an existing template of any author.
func (g *generator) changeTemplate() {
	names := make([]string, 0, len(g.written))
	for name := range g.written {
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	template := g.written[pick(g, names...)].DeepCopy()
	switch g.IntN(8) {
	case 0:
		template.Spec.Templates = nil
	case 1:
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: pick(g,
			v1alpha1.TemplateApplyDisable, "enable")}
	case 2:
		template.Spec.Namespaces = g.selector(pick(g, TierLabel, "no"))
	case 3:
		g.addTemplate(DeleteTemplate, g.round.Author.Name, template)
		return
	case 4:
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	case 5:
		template.Spec.Templates = template.Spec.Templates[:g.IntN(len(template.Spec.Templates)+1)]
	case 6:
		template.Spec.Overlays = append(template.Spec.Overlays, g.overlay("more", g.round.Author.Rules))
	case 7:
		template.Spec.Templates = append(template.Spec.Templates, raw(g.plain()))
	}
	g.write(g.round.Author.Name, template)
}

func raw(o *unstructured.Unstructured) runtime.RawExtension {
	return runtime.RawExtension{Raw: []byte(marshal(o.Object))}
}

func (g *generator) selector(key string) v1alpha1.NamespaceSelector {
	labels := map[string]string{SelectLabel: g.round.Name}
	if key != SelectLabel {
		labels[key] = "x"
	}
	return v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}
}
