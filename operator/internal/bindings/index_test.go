package bindings

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

func roleBinding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}, Subjects: subjects,
	}
}

func clusterRoleBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
	}
}

func user(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }
func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func stores(index *Index) (everywhere, inNamespaces *store) {
	return &store{index: index, isCluster: true, synced: make(chan struct{})},
		&store{index: index, synced: make(chan struct{})}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	index := NewIndex()
	everywhere, inNamespaces := stores(index)
	require.NoError(t, everywhere.Replace([]any{
		clusterRoleBinding("a", "setter", user("cluster"), group("clusters"), account("ci", "robot"),
			account("", "nobody")),
	}, ""))
	require.NoError(t, inNamespaces.Replace([]any{
		roleBinding("team-a", "a", "ClusterRole", "setter", user("jane"), group("janes"), account("", "own")),
		roleBinding("team-a", "b", "Role", "setter", user("joe")),
		roleBinding("team-b", "a", "ClusterRole", "setter", user("jim"), user("system:serviceaccount:ci:by-name")),
	}, ""))
	for _, test := range []struct {
		who        attributes.Requester
		kind       string
		namespaces string
	}{
		{attributes.Requester{Name: "cluster"}, "ClusterRole", " team-a team-b"},
		{attributes.Requester{Name: "x", Groups: []string{"y", "clusters"}}, "ClusterRole", " team-a team-b"},
		{attributes.Requester{Name: "clusters", Groups: []string{"cluster"}}, "ClusterRole", "never"},
		{attributes.Requester{Name: "system:serviceaccount:ci:robot"}, "ClusterRole", " team-a team-b"},
		{attributes.Requester{Name: "system:serviceaccount:team-a:robot"}, "ClusterRole", "never"},
		{attributes.Requester{Name: "system:serviceaccount::nobody"}, "ClusterRole", "never"},
		{attributes.Requester{Name: "jane"}, "ClusterRole", "team-a"},
		{attributes.Requester{Name: "jane"}, "Role", "never"},
		{attributes.Requester{Name: "x", Groups: []string{"janes"}}, "ClusterRole", "team-a"},
		{attributes.Requester{Name: "system:serviceaccount:team-a:own"}, "ClusterRole", "team-a"},
		{attributes.Requester{Name: "system:serviceaccount:team-b:own"}, "ClusterRole", "never"},
		{attributes.Requester{Name: "joe"}, "Role", "team-a"},
		{attributes.Requester{Name: "joe"}, "ClusterRole", "never"},
		{attributes.Requester{Name: "system:serviceaccount:ci:by-name"}, "ClusterRole", "team-b"},
	} {
		for _, namespace := range []string{"", "team-a", "team-b", "team-c"} {
			want := namespace == test.namespaces || test.namespaces[0] == ' '
			require.Equal(t, want,
				index.Holds(test.who, v1alpha1.RoleReference{Kind: test.kind, Name: "setter"}, namespace), "%+v in %q",
				test, namespace)
			require.False(t, index.Holds(test.who, v1alpha1.RoleReference{Kind: test.kind, Name: "other"}, namespace))
		}
	}
}

// Whatever comes and goes, the index knows what a search through all bindings would find.
func TestIndexFollowsChanges(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	index := NewIndex()
	everywhere, inNamespaces := stores(index)
	there := map[string]*rbacv1.RoleBinding{}
	pick := func(of string) string { return fmt.Sprint(of, random.IntN(3)) }
	for range 3000 {
		namespace := pick("ns")
		if random.IntN(3) == 0 {
			namespace = ""
		}
		b := roleBinding(namespace, pick("binding"), "ClusterRole", pick("role"))
		for range random.IntN(3) {
			b.Subjects = append(b.Subjects, []rbacv1.Subject{user(pick("user")), group(pick("group"))}[random.IntN(2)])
		}
		key := b.Namespace + "/" + b.Name
		target, object := inNamespaces, any(b)
		if namespace == "" {
			target, object = everywhere,
				&rbacv1.ClusterRoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects}
		}
		switch random.IntN(5) {
		case 0:
			require.NoError(t, target.Delete(object))
			delete(there, key)
		case 1: // a new list, without what is gone
			list := []any{object}
			for other, binding := range there {
				if (binding.Namespace == "") == (namespace == "") {
					delete(there, other)
				}
			}
			require.NoError(t, target.Replace(list, ""))
			there[key] = b
		default:
			require.NoError(t, target.Update(object))
			there[key] = b
		}
		role, in := pick("role"), pick("ns")
		who := attributes.Requester{Name: pick("user"), Groups: []string{pick("group")}}
		want := false
		for _, binding := range there {
			want = want || binding.RoleRef.Name == role && (binding.Namespace == "" || binding.Namespace == in) &&
				slices.ContainsFunc(binding.Subjects, func(subject rbacv1.Subject) bool {
					found, _ := attributes.SubjectOf(subject, binding.Namespace)
					return who.Is(found)
				})
		}
		require.Equal(t, want, index.Holds(who, v1alpha1.RoleReference{Kind: "ClusterRole", Name: role}, in))
	}
	require.NoError(t, everywhere.Replace(nil, ""))
	require.NoError(t, inNamespaces.Replace(nil, ""))
	require.Empty(t, index.bindings)
	require.Empty(t, index.holdings)
}

// The bindings of 10,000 namespaces with five each.
func manyBindings() []any {
	var all []any
	for ns := range 10_000 {
		namespace := fmt.Sprint("team-", ns)
		all = append(all,
			roleBinding(namespace, "creator-admin", "ClusterRole", "admin",
				user(fmt.Sprintf("user-%d@example.com", ns))),
			roleBinding(namespace, "editors", "ClusterRole", "edit", group(fmt.Sprint("team-", ns))),
			roleBinding(namespace, "viewers", "ClusterRole", "view", group("everybody")),
			roleBinding(namespace, "deployers", "ClusterRole", "prod-deployer", account(namespace, "deployer"),
				group(fmt.Sprint("ops-", ns%100))),
			roleBinding(namespace, "setters", "Role", "setter", user(fmt.Sprintf("user-%d@example.com", ns))),
		)
	}
	return all
}

func BenchmarkDecision(b *testing.B) {
	index := NewIndex()
	_, inNamespaces := stores(index)
	before := heap()
	bindings := manyBindings()
	if err := inNamespaces.Replace(bindings, ""); err != nil {
		b.Fatal(err)
	}
	count := len(bindings)
	size := heap() - before
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{{AttributeRule: v1alpha1.AttributeRule{
		AttributeKind: v1alpha1.LabelAttribute, AttributeName: "env",
		RoleRef: v1alpha1.RoleReference{Kind: "ClusterRole", Name: "prod-deployer"},
	}}}, nil)
	labels := map[string]any{"app": "web", "env": "prod", "app.kubernetes.io/name": "web"}
	change := attributes.Change{Namespace: "team-5000", New: map[string]any{
		"metadata": map[string]any{"name": "web", "labels": labels},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": labels}}},
	}}
	who := attributes.Requester{
		Name: "jane", Groups: []string{"system:authenticated", "everybody", "team-5000", "ops-0"},
	}
	b.ReportAllocs()
	for b.Loop() {
		violations := rules.Judge(change, func(role v1alpha1.RoleReference) bool {
			return index.Holds(who, role, change.Namespace)
		})
		if len(violations) > 0 {
			b.Fatal("refused")
		}
	}
	b.ReportMetric(float64(size)/float64(count), "B/binding")
	b.ReportMetric(float64(size)/(1<<20), "MiB")
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
