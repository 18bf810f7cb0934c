package escalation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	narrow = `rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`
	wide   = `rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`
)

// writes builds a history. Each write has the next revision.
type writes struct {
	t       *testing.T
	history History
}

func (w *writes) write(user, text string) *writes {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(w.t, yaml.Unmarshal([]byte(text), &object.Object))
	w.history.Records = append(w.history.Records,
		Record{Revision: uint64(len(w.history.Records) + 1), Object: object, Writer: user})
	return w
}

func (w *writes) remove(user, text string) *writes {
	w.t.Helper()
	w.write(user, text)
	w.history.Records[len(w.history.Records)-1].Deleted = true
	return w
}

func (w *writes) settle() *writes {
	w.history.Settled = append(w.history.Settled, uint64(len(w.history.Records)))
	return w
}

func of(template string) string {
	if template == "" {
		return ""
	}
	return ", labels: {policy/namespace-template-name: " + template + "}"
}

func role(template, rules string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: worker, namespace: ns" +
		of(template) + "}, " + rules + "}"
}

func binding(template, user string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: workers, namespace: ns" +
		of(template) + "}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: worker}, subjects: [{kind: User, name: " +
		user + "}]}"
}

func clusterBinding(template, clusterRole string) string {
	return strings.NewReplacer("kind: Role,", "kind: ClusterRole,", "name: worker}",
		"name: "+clusterRole+"}").Replace(binding(template, "alice"))
}

func settings(template, value string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: ns" + of(template) +
		"}, data: {a: " + value + "}}"
}

const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: {test: x}}}"

// template is a NamespaceTemplate that declares objects.
func template(name, objects string) string {
	return "{apiVersion: policy.nstpl.dev/v1alpha1, kind: NamespaceTemplate, metadata: {name: " + name + "}, " +
		"spec: {namespaces: {labelSelector: {matchLabels: {test: x}}}, templates: [" + objects + "]}}"
}

const declared = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}"

// authors are named after their permissions.
var authors = map[string]Author{
	"admin": Administrator("admin"),
	"bare":  {Name: "bare", Rules: []rbacv1.PolicyRule{newRule("*", "policy.nstpl.dev", "namespacetemplates")}},
	"rbac": {
		Name: "rbac",
		Rules: []rbacv1.PolicyRule{
			newRule("create patch delete", rbacv1.GroupName, "roles rolebindings"), newRule("get", "", "configmaps"),
		},
	},
	"binder": {Name: "binder", Rules: []rbacv1.PolicyRule{
		newRule("create patch", rbacv1.GroupName, "roles rolebindings"),
		newRule("bind", rbacv1.GroupName, "roles", "worker"),
		newRule("bind", rbacv1.GroupName, "clusterroles", "view"),
	}},
	"escalator": {
		Name: "escalator",
		Rules: []rbacv1.PolicyRule{
			newRule("create patch", rbacv1.GroupName, "roles rolebindings"),
			newRule("escalate", rbacv1.GroupName, "roles", "worker"),
		},
	},
	"creator": {Name: "creator", Rules: []rbacv1.PolicyRule{newRule("create", "", "configmaps")}},
	"writer":  {Name: "writer", Rules: []rbacv1.PolicyRule{newRule("create patch", "", "configmaps")}},
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		history func(w *writes) *writes
		// violations are parts of the expected violations, in this order.
		violations []string
	}{
		"a Role and its binding, both held": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", role("a", narrow)).write("", binding("a", "alice"))
		}, nil},
		"a binding before its Role": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", binding("a", "alice")).write("", role("a", narrow))
		}, []string{"could not bind Role worker, which does not exist, to User alice"}},
		"a binding before its Role, by an author who may bind it": {func(w *writes) *writes {
			return w.write("binder", template("a", "")).write("", binding("a", "alice"))
		}, nil},
		"a binding to a wide Role of others": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("rbac", template("a", "")).write("", binding("a", "alice"))
		}, []string{"could not grant User alice the rules [{[get] [] [secrets] [] []}]"}},
		"a binding to a wide Role of others, narrowed after": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("rbac", template("a", "")).write("",
				binding("a", "alice")).write("", role("a", narrow))
		}, []string{"could not grant User alice"}},
		"a binding to a wide Role of others, narrowed before": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("rbac", template("a", "")).write("",
				role("a", narrow)).write("", binding("a", "alice"))
		}, nil},
		"a binding to a wide Role, by an author who may bind it": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("binder", template("a", "")).write("", binding("a", "alice"))
		}, nil},
		"escalate does not bind": {func(w *writes) *writes {
			return w.write("escalator", template("a", "")).write("", role("a", wide)).write("", binding("a", "alice"))
		}, []string{"could not grant User alice"}},
		"rules that a subject already has are not gained": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("admin",
				strings.Replace(binding("", "alice"), "workers", "others", 1)).
				write("rbac", template("a", "")).write("", binding("a", "alice"))
		}, nil},
		"a subject that is added": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", role("a", narrow)).write("", binding("a", "alice")).
				write("admin", role("a", wide)).write("", binding("a", "bob"))
		}, []string{"could not grant User bob"}},
		"a wide Role": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", role("a", wide))
		}, []string{"could not declare a Role with [{[get] [] [secrets] [] []}]"}},
		"a wide Role, by an author who may escalate": {func(w *writes) *writes {
			return w.write("escalator", template("a", "")).write("", role("a", wide))
		}, nil},
		"a Role that another template declares with rules": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", role("a", "rules: []")).write("",
				binding("a", "alice")).settle().
				write("admin", template("b", "")).write("", role("b", wide))
		}, []string{"of template a by rbac: the author could not bind Role worker once the operator has added"}},
		"a Role that another template declares with rules, bound by that": {func(w *writes) *writes {
			return w.write("admin", template("b", "")).write("", role("b", wide)).write("", binding("b", "alice"))
		}, nil},
		"a ClusterRole": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", clusterBinding("a", "view"))
		}, []string{"ClusterRole view"}},
		"a ClusterRole, by an author who may bind it": {func(w *writes) *writes {
			return w.write("binder", template("a", "")).write("", clusterBinding("a", "view"))
		}, nil},
		"a ClusterRole that does not exist": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", clusterBinding("a", "missing"))
		}, []string{"could not bind ClusterRole missing, which does not exist"}},
		"writes of users are not judged": {func(w *writes) *writes {
			return w.write("admin", role("", wide)).write("admin", binding("", "alice")).remove("admin",
				binding("", "alice"))
		}, nil},
		"an object that is overwritten": {func(w *writes) *writes {
			return w.write("admin", settings("", "1")).write("creator", template("a", "")).write("", settings("a", "2"))
		}, []string{"could not patch it"}},
		"an object that is overwritten, by an author who may patch it": {func(w *writes) *writes {
			return w.write("admin", settings("", "1")).write("writer", template("a", "")).write("", settings("a", "2"))
		}, nil},
		"an object that is adopted as it is": {func(w *writes) *writes {
			return w.write("admin", settings("", "1")).write("creator", template("a", "")).write("", settings("a", "1"))
		}, nil},
		"an object that is created without the right": {func(w *writes) *writes {
			return w.write("bare", template("a", "")).write("", settings("a", "1"))
		}, []string{"could not create it"}},
		"an object without a template": {func(w *writes) *writes {
			return w.write("", settings("", "1"))
		}, []string{"could not create it"}},
		"a template that an author empties": {func(w *writes) *writes {
			return w.write("admin", template("a", declared)).write("", settings("a", "1")).settle().write("bare",
				template("a", "")).remove("", settings("a", "1"))
		}, []string{"by bare: the author could not delete it"}},
		"a template that an author deletes": {func(w *writes) *writes {
			return w.write("admin", template("a", declared)).write("", settings("a", "1")).settle().remove("bare",
				template("a", declared)).remove("", settings("a", "1"))
		}, []string{"by bare: the author could not delete it"}},
		"a template that an administrator empties": {func(w *writes) *writes {
			return w.write("writer", template("a", declared)).write("", settings("a", "1")).settle().write("admin",
				template("a", "")).remove("", settings("a", "1"))
		}, nil},
		"a template that an author writes as it was": {func(w *writes) *writes {
			return w.write("admin", template("a", declared)).settle().write("bare", template("a", declared)).write("",
				settings("a", "1"))
		}, nil},
		"a namespace that is not selected any more": {func(w *writes) *writes {
			return w.write("admin", namespace).write("writer", template("a", declared)).write("",
				settings("a", "1")).settle().
				write("admin", strings.Replace(namespace, "test: x", "test: y", 1)).remove("", settings("a", "1"))
		}, nil},
		"an object of others that is deleted": {func(w *writes) *writes {
			return w.write("admin", namespace).write("admin", settings("", "1")).write("writer",
				template("a", declared)).write("", settings("a", "2")).settle().
				write("admin", strings.Replace(namespace, "test: x", "test: y", 1)).remove("", settings("a", "2"))
		}, []string{"could not delete it"}},
		"an object that is replaced": {func(w *writes) *writes {
			return w.write("rbac", template("a", "")).write("", role("a", narrow)).write("", binding("a", "alice")).
				remove("", binding("a", "alice")).write("", binding("a", "bob"))
		}, nil},
		"a template that is overridden": {func(w *writes) *writes {
			return w.write("admin", namespace).write("admin", template("a", declared)).write("", settings("a", "1")).
				write("writer", template("b", declared)).write("", settings("b", "2"))
		}, []string{"could not change template a, which declares it"}},
		"a template that is overridden by an earlier one": {func(w *writes) *writes {
			return w.write("admin", namespace).write("writer", template("b", declared)).write("admin",
				template("a", declared)).write("", settings("a", "1")).
				write("", settings("b", "2"))
		}, nil},
		"a template that does not declare any more what another one does": {func(w *writes) *writes {
			return w.write("admin", namespace).write("admin", template("a", declared)).write("",
				settings("a", "1")).write("admin", template("a", "")).
				write("writer", template("b", declared)).write("", settings("b", "2"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &writes{
				t: t,
				history: History{
					Authors:      authors,
					ClusterRoles: map[string][]rbacv1.PolicyRule{"view": {newRule("get", "", "pods")}},
				},
			}
			violations := Judge(test.history(w).history)
			require.Len(t, violations, len(test.violations), "%v", violations)
			for i, said := range test.violations {
				require.Contains(t, violations[i].String(), said)
			}
		})
	}
}

// Records are judged in the order of their revisions, not of their delivery.
func TestGrantedAtAnyMoment(t *testing.T) {
	t.Parallel()
	alice := rbacv1.Subject{Kind: "User", Name: "alice"}
	w := (&writes{t: t}).write("", role("a", wide)).write("", binding("a", "alice")).write("", role("a", narrow))
	ever := Author{Rules: Granted(w.history.Records, nil, "ns", alice)}
	require.True(t, ever.Holds([]rbacv1.PolicyRule{newRule("get", "", "secrets")}))
	require.True(t, ever.Holds([]rbacv1.PolicyRule{newRule("get", "", "configmaps")}))
	require.Empty(t, Granted(w.history.Records, nil, "ns", rbacv1.Subject{Kind: "User", Name: "bob"}))
	require.Empty(t, Granted(w.history.Records, nil, "other", alice))

	w = (&writes{t: t}).write("", role("a", wide)).write("", role("a", narrow)).write("", binding("a", "alice"))
	records := w.history.Records
	records[0], records[2] = records[2], records[0]
	ever = Author{Rules: Granted(records, nil, "ns", alice)}
	require.False(t, ever.Holds([]rbacv1.PolicyRule{newRule("get", "", "secrets")}))
}

// A round depends only on its seed.
func TestRoundIsReproducible(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		rounds := [2]string{}
		for i := range rounds {
			rounds[i] = fmt.Sprint(NewRound(rand.New(rand.NewPCG(seed, 1)), "x"))
		}
		require.Equal(t, rounds[0], rounds[1])
	}
}
