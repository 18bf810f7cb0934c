package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// history is a random sequence of what administrators, an author and the owner of namespaces do with two templates.
// The templates grant rights.
type history struct {
	*testScope
	*rand.Rand
	names      []string
	earlier    map[string][]v1alpha1.NamespaceTemplateSpec
	namespaces []*corev1.Namespace
	owner      testUser
	author     client.Client
	steps      []string
}

// Whatever changes, pauses, resumptions, undone changes, deletions, labels and replaced objects come together: each
// namespace ends with the grants that the stored templates declare for it, or with fewer of them.
func TestNoHistoryOfTemplatesKeepsAGrant(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seed)
			actions := []func(){
				h.edit, h.edit, h.edit, h.pause, h.resume, h.undo, h.switchOffOrOn, h.remove, h.label, h.label,
				h.replaceOne, h.makeImmutable, h.pauseAsAuthor,
			}
			for range 30 {
				actions[h.IntN(len(actions))]()
				if h.IntN(3) > 0 { // otherwise, the operator may not have seen the step when the next one is made
					h.eventually(func(c *assert.CollectT) {
						assert.Empty(c, h.beyond(), "after %s", strings.Join(h.steps, "; "))
					})
				}
			}
			h.eventually(func(c *assert.CollectT) { assert.Empty(c, h.beyond(), strings.Join(h.steps, "; ")) })
		})
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	s := newScope(t, sharedCluster)
	h := &history{
		testScope: s, Rand: rand.New(rand.NewPCG(seed, 0)), names: []string{"a", "b"},
		earlier: map[string][]v1alpha1.NamespaceTemplateSpec{},
		owner:   s.newUser(s.name("owner")), author: s.newTemplateAuthor("author"),
	}
	for i := range 3 {
		ns := s.createNamespace(fmt.Sprint("n", i), withLabel(tierLabel, "gold"))
		s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, "admin", userSubject(h.owner.name))
		h.namespaces = append(h.namespaces, ns)
	}
	h.edit()
	return h
}

func (h *history) step(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// stored returns one of the templates, or nil if it does not exist.
func (h *history) stored(name string) *v1alpha1.NamespaceTemplate {
	h.t.Helper()
	template := &v1alpha1.NamespaceTemplate{}
	err := h.client.Get(h.t.Context(), client.ObjectKey{Name: h.name(name)}, template)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(h.t, err)
	return template
}

// put changes one of the templates, or creates it.
func (h *history) put(what string, change func(*v1alpha1.NamespaceTemplate)) {
	h.t.Helper()
	name := h.names[h.IntN(len(h.names))]
	h.step("%s %s", what, name)
	template := h.stored(name)
	if template == nil {
		template = h.newTemplate(name, h.grants(name), deletesObjects)
		change(template)
		require.NoError(h.t, h.client.Create(h.t.Context(), template))
		return
	}
	h.earlier[name] = append(h.earlier[name], template.Spec)
	h.patchTemplate(template, change)
}

// grants returns random RoleBindings, sometimes a Role, and a ConfigMap.
func (h *history) grants(name string) string {
	var objects []string
	users := []string{"u0", "u1", "u2"}
	for i := range 2 {
		h.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
		if count := h.IntN(3); count > 0 {
			objects = append(objects, grantTo(fmt.Sprint(replacedName, name, i), users[:count]...))
		}
	}
	if role := replacedName + name; h.IntN(2) > 0 {
		verbs := [...]string{"get", "get, list", "list, watch"}[h.IntN(3)]
		objects = append(objects, strings.Replace(readerOf(verbs), "name: reader", "name: "+role, 1),
			bindingToRole(role, role, users[0]))
	}
	return documents(append(objects, configMap(name, fmt.Sprint(h.IntN(5))))...)
}

func (h *history) edit() {
	h.put("edit", func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = rawObjects(h.t, h.grants(strings.TrimPrefix(template.Name, h.name(""))))
		template.Spec.Namespaces = selectLabel(testLabel, h.id)
		if tier := [...]string{"", "gold", "silver"}[h.IntN(3)]; tier != "" {
			template.Spec.Namespaces.LabelSelector.MatchLabels[tierLabel] = tier
		}
		template.Spec.Rollout = [...]*v1alpha1.Rollout{nil, {Paused: true}, {Waves: []v1alpha1.Wave{{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{tierLabel: "gold"}}, PauseSeconds: 3600,
		}}}}[h.IntN(3)]
	})
}

func (h *history) pause() { h.put("pause", pausesRollout) }

func (h *history) resume() { h.put("resume", resumesRollout) }

func (h *history) undo() {
	h.put("undo", func(template *v1alpha1.NamespaceTemplate) {
		if specs := h.earlier[strings.TrimPrefix(template.Name, h.name(""))]; len(specs) > 0 {
			rollout := template.Spec.Rollout
			specs[h.IntN(len(specs))].DeepCopyInto(&template.Spec)
			template.Spec.Rollout = rollout
		}
	})
}

func (h *history) switchOffOrOn() {
	h.put("switch", func(template *v1alpha1.NamespaceTemplate) {
		if template.Annotations[v1alpha1.TemplateApplyAnnotation] != "" {
			delete(template.Annotations, v1alpha1.TemplateApplyAnnotation)
			return
		}
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	})
}

// remove deletes a template. A later step may create one of its name.
func (h *history) remove() {
	name := h.names[h.IntN(len(h.names))]
	h.step("delete %s", name)
	if template := h.stored(name); template != nil {
		h.delete(template)
		h.eventually(func(c *assert.CollectT) { assert.Nil(c, h.stored(name)) })
	}
}

func (h *history) pauseAsAuthor() {
	name := h.names[h.IntN(len(h.names))]
	h.step("the author pauses %s", name)
	if template := h.stored(name); template != nil {
		require.NoError(h.t, h.author.Patch(h.t.Context(), template, mergePatch(`{"spec": {"rollout": {"paused": true}}}`)))
	}
}

func (h *history) label() {
	ns, tier := h.namespaces[h.IntN(len(h.namespaces))], [...]string{"null", `"gold"`, `"silver"`}[h.IntN(3)]
	h.step("the owner labels %s with %s", ns.Name, tier)
	require.NoError(h.t, h.owner.patchesNamespace(ns.Name,
		fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, tierLabel, tier)))
}

// makeImmutable prepares a failure of a later change.
func (h *history) makeImmutable() {
	ns, name := h.namespaces[h.IntN(len(h.namespaces))], h.names[h.IntN(len(h.names))]
	h.step("the owner makes configmap %s in %s immutable", name, ns.Name)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}
	require.NoError(h.t, client.IgnoreNotFound(
		h.client.Patch(h.t.Context(), config, mergePatch(`{"immutable": true}`))))
}

// replaceOne tries to put an equal RoleBinding of the owner in place of a populated one.
func (h *history) replaceOne() {
	ns := h.namespaces[h.IntN(len(h.namespaces))]
	bindings := h.owner.RbacV1().RoleBindings(ns.Name)
	for _, populated := range h.populatedBindings(ns) {
		theirs := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: populated.Name}, RoleRef: populated.RoleRef, Subjects: populated.Subjects,
		}
		for range 5 {
			_ = bindings.Delete(h.t.Context(), theirs.Name, metav1.DeleteOptions{})
			if _, err := bindings.Create(h.t.Context(), theirs, metav1.CreateOptions{}); err == nil {
				h.step("the owner replaces %s in %s", theirs.Name, ns.Name)
				break
			}
		}
	}
}

// populatedBindings returns the RoleBindings of a namespace that templates of the history declare or declared.
func (h *history) populatedBindings(ns *corev1.Namespace) []rbacv1.RoleBinding {
	h.t.Helper()
	list := &rbacv1.RoleBindingList{}
	require.NoError(h.t, h.client.List(h.t.Context(), list, client.InNamespace(ns.Name)))
	return slices.DeleteFunc(list.Items, func(binding rbacv1.RoleBinding) bool {
		return !strings.HasPrefix(binding.Name, replacedName)
	})
}

// beyond returns what users may do in the namespaces that no stored template grants there.
func (h *history) beyond() []string {
	h.t.Helper()
	var found []string
	for _, ns := range h.namespaces {
		declared := h.declared(ns)
		for _, binding := range h.populatedBindings(ns) {
			for _, subject := range binding.Subjects {
				if grant := fmt.Sprint(subject.Name, " ", binding.RoleRef.Name); !declared[grant] {
					found = append(found, fmt.Sprintf("%s in %s by %s", grant, ns.Name, binding.Name))
				}
			}
		}
		roles := &rbacv1.RoleList{}
		require.NoError(h.t, h.client.List(h.t.Context(), roles, client.InNamespace(ns.Name)))
		for _, role := range roles.Items {
			for _, rule := range role.Rules {
				for _, verb := range rule.Verbs {
					if grant := fmt.Sprint(role.Name, " ", verb); strings.HasPrefix(role.Name, replacedName) && !declared[grant] {
						found = append(found, grant+" in "+ns.Name)
					}
				}
			}
		}
	}
	return found
}

// declared returns what the stored templates declare for a namespace: subjects with roles, and Roles with verbs.
func (h *history) declared(ns *corev1.Namespace) map[string]bool {
	h.t.Helper()
	live, grants := &corev1.Namespace{}, map[string]bool{}
	require.NoError(h.t, h.client.Get(h.t.Context(), client.ObjectKeyFromObject(ns), live))
	for _, name := range h.names {
		template := h.stored(name)
		if template == nil || template.Annotations[v1alpha1.TemplateApplyAnnotation] != "" {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(template.Spec.Namespaces.LabelSelector)
		require.NoError(h.t, err)
		if !selector.Matches(labels.Set(live.Labels)) {
			continue
		}
		for _, object := range template.Spec.Templates {
			declared := struct {
				rbacv1.RoleBinding `json:",inline"`
				Rules              []rbacv1.PolicyRule `json:"rules"`
			}{}
			require.NoError(h.t, yaml.Unmarshal(object.Raw, &declared))
			for _, subject := range declared.Subjects {
				grants[fmt.Sprint(subject.Name, " ", declared.RoleRef.Name)] = true
			}
			for _, rule := range declared.Rules {
				for _, verb := range rule.Verbs {
					grants[fmt.Sprint(declared.Name, " ", verb)] = true
				}
			}
		}
	}
	return grants
}
