package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// syncScenarios returns the scenarios of nstpl-sync. Faults happen to it, while the operator works undisturbed.
func syncScenarios() []scenario {
	all := []scenario{syncFirst(), syncEdit(), syncRename(), syncDelete(), syncProtected(), syncLabels(), syncConfirm(),
		syncChurn()}
	const lasts = 4 * time.Second
	notApplied := fault{answer: http.StatusServiceUnavailable, chance: 1, methods: "PATCH", lasts: lasts}
	templates, spaces := notApplied, notApplied
	templates.name, templates.writesOf = "NamespaceTemplates not applied", "namespacetemplates"
	spaces.name, spaces.writesOf = "PolicySpaces not applied", "policyspaces"
	for i := range all {
		all[i].ofSync = true
		all[i].more = []fault{
			templates, spaces, {name: "the Git server fails", during: gitFails, lasts: lasts},
			{name: "the leader is suspended at once", do: suspend, at: 1, lasts: lasts},
		}
		if name := all[i].name; name == "sync first" || name == "sync churn" { // the others write less
			all[i].more = append(all[i].more, killed(24)[24:]...)
		}
	}
	return all
}

// tree has the content of the files of a tree by their paths. RUN stands for the run's id.
type tree map[string]string

// with returns a copy of a tree with some files added or changed. Those without content are removed.
func (t tree) with(changes tree) tree {
	changed := maps.Clone(t)
	maps.Copy(changed, changes)
	maps.DeleteFunc(changed, func(_, content string) bool { return content == "" })
	return changed
}

// firstTree returns a tree with the run's namespaces in policyspace team, which is in old. Their user has access by a
// RoleBinding of old. Policyspace b gives the same access.
func (r *run) firstTree() tree {
	t := tree{
		"reader.yaml":                            clusterRole("RUN-reader", "get"),
		"shared.yaml":                            clusterRole("RUN-shared", "list"),
		"readers.yaml":                           clusterBinding("RUN-readers", "RUN-reader"),
		"RUN-old/of-old.yaml":                    binding("of-old", "view"),
		"RUN-old/RUN-team/edited.yaml":           binding("edited", "view"),
		"RUN-b/of-b.yaml":                        binding("of-b", "view"),
		"RUN-b/RUN-stays/namespace.yaml":         namespaceFile("RUN-stays"),
		"RUN-above-goes/OWNERS":                  "approvers: [ann]\n",
		"RUN-above-goes/RUN-goes/namespace.yaml": namespaceFile("RUN-goes"),
		"RUN-above-goes/RUN-goes/local.yaml":     binding("local", "view"),
		"RUN-b/RUN-existing/namespace.yaml":      namespaceFile("RUN-existing"),
		"RUN-b/RUN-adopted/namespace.yaml":       namespaceFile("RUN-adopted"),
	}
	for i := range r.namespaces {
		t[namespacePath("RUN-old/RUN-team", i)] = namespaceFile(fmt.Sprint("RUN-n", i))
	}
	return t
}

// namespacePath returns the path of the file of one of the run's namespaces in a directory.
func namespacePath(dir string, number int) string {
	return fmt.Sprintf("%s/RUN-n%d/namespace.yaml", dir, number)
}

func namespaceFile(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", labels: {" + runLabel + ": RUN}}\n"
}

func clusterRole(name, verb string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + name + "}\n" +
		"rules: [{apiGroups: [''], resources: [pods], verbs: [" + verb + "]}]\n"
}

func clusterBinding(name, role string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: " + name + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: someone}]\n"
}

// renamedTree returns a tree in which old has the name new, and the first namespace is in b.
func (r *run) renamedTree() tree {
	changes := tree{
		"RUN-old/of-old.yaml": "", "RUN-old/RUN-team/edited.yaml": "",
		"RUN-new/of-new.yaml": binding("of-new", "view"), "RUN-new/RUN-team/edited.yaml": binding("edited", "view"),
		namespacePath("RUN-b", 0): namespaceFile("RUN-n0"),
	}
	for i := range r.namespaces {
		changes[namespacePath("RUN-old/RUN-team", i)] = ""
		if i > 0 {
			changes[namespacePath("RUN-new/RUN-team", i)] = namespaceFile(fmt.Sprint("RUN-n", i))
		}
	}
	return r.firstTree().with(changes)
}

// createObjectsOfOthers creates what others have before the first commit: a namespace that the tree does not declare,
// one that it declares and may not adopt, one that it may adopt, and ClusterRoles.
func (r *run) createObjectsOfOthers() {
	for _, short := range []string{"theirs", "existing", "adopted"} {
		ns := r.namespace(r.name(short))
		theirs := "theirs"
		if short == "adopted" {
			ns.Annotations = map[string]string{v1alpha1.AdoptAnnotation: "true"}
			theirs = undeclared // adoption allows its deletion
		}
		r.create(ns)
		r.createIn(ns.Name, plain("theirs")+binding(theirs, "view"))
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"watch"}}}
	r.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.name("shared")}, Rules: rules})
	ofTree := map[string]string{v1alpha1.TreeLabel: r.name("tree")}
	r.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.name("labelled"), Labels: ofTree}, Rules: rules})
}

// followFirstTree has the cluster follow a repository with the first tree.
func (r *run) followFirstTree() { r.followTree(r.firstTree(), nil) }

// followTree has the cluster follow a repository with a tree.
func (r *run) followTree(t tree, limit *v1alpha1.DeletionLimit) {
	r.createObjectsOfOthers()
	r.prepareSync()
	r.commit(t)
	r.follow(limit)
}

// syncFirst: a repository with a tree is followed. Objects of others exist before. Later a commit breaks a rule, and is
// reverted.
func syncFirst() scenario {
	return scenario{
		name: "sync first", deletes: []string{undeclared},
		before: func(r *run) {
			r.createObjectsOfOthers()
			r.prepareSync()
		},
		do: func(r *run) {
			r.commit(r.firstTree())
			r.follow(nil)
		},
		then: func(r *run) {
			r.commit(r.firstTree().with(tree{"RUN-old/RUN-b/namespace.yaml": namespaceFile("other")}))
			r.commit(r.firstTree())
		},
	}
}

// syncEdit: policies are edited, added and removed. One object must be replaced. Then the commit is reverted.
func syncEdit() scenario {
	return scenario{
		name: "sync edit", observe: (*run).watchAccess, deletes: []string{undeclared, "edited", "readers", "added"},
		before: (*run).followFirstTree,
		do: func(r *run) {
			r.commit(r.firstTree().with(tree{
				"reader.yaml":                  clusterRole("RUN-reader", "watch"),
				"readers.yaml":                 clusterBinding("RUN-readers", "RUN-added"),
				"added.yaml":                   clusterRole("RUN-added", "get"),
				"shared.yaml":                  "",
				"RUN-old/RUN-team/edited.yaml": binding("edited", "edit"),
				"RUN-old/RUN-team/added.yaml":  binding("added", "view"),
				"RUN-added/added.yaml":         binding("added", "view"),
			}))
		},
		then: func(r *run) { r.commit(r.firstTree()) },
	}
}

// syncRename: a directory is renamed, and a namespace is moved. Then the commit is reverted.
func syncRename() scenario {
	return scenario{
		name: "sync rename", observe: (*run).watchAccess,
		deletes:    []string{undeclared, "-old", "-new", ".of-b", "edited"},
		before:     (*run).followFirstTree,
		do:         func(r *run) { r.commit(r.renamedTree()) },
		leaderless: func(r *run) { r.commit(r.firstTree()) },
		then:       func(r *run) { r.commit(r.firstTree()) },
	}
}

// syncDelete: a namespace and a policyspace are deleted, and an adopted namespace is released. Then the commit is
// reverted.
func syncDelete() scenario {
	return scenario{
		name: "sync delete", observe: (*run).watchAccess, deletes: []string{undeclared, "-goes", ".of-b", "local"},
		before:     (*run).followFirstTree,
		do:         func(r *run) { r.commit(r.treeWithoutGoes()) },
		leaderless: func(r *run) { r.commit(r.firstTree()) },
		then:       func(r *run) { r.commit(r.firstTree()) },
	}
}

func (r *run) treeWithoutGoes() tree {
	return r.firstTree().with(tree{
		"RUN-above-goes/OWNERS": "", "RUN-above-goes/RUN-goes/namespace.yaml": "", "RUN-above-goes/RUN-goes/local.yaml": "",
		"RUN-b/RUN-adopted/namespace.yaml": "",
	})
}

// syncProtected: a commit no longer declares a namespace that is protected from deletion, which stays with its
// policyspace. Then the commit is reverted.
func syncProtected() scenario {
	withProtected := func(r *run) tree {
		file := strings.Replace(namespaceFile("RUN-goes"), "{name: RUN-goes,",
			"{name: RUN-goes, annotations: {"+v1alpha1.DeletionProtectionAnnotation+`: "true"},`, 1)
		return r.firstTree().with(tree{"RUN-above-goes/RUN-goes/namespace.yaml": file})
	}
	return scenario{
		name: "sync protected", deletes: []string{undeclared, "-goes", ".of-b", "local"},
		before: func(r *run) { r.followTree(withProtected(r), nil) },
		observe: func(r *run) func() []string {
			return r.observeSame(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name("goes")}},
				&v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name("above-goes")}})
		},
		do:         func(r *run) { r.commit(r.treeWithoutGoes()) },
		leaderless: func(r *run) { r.commit(withProtected(r)) },
		then:       func(r *run) { r.commit(withProtected(r)) },
	}
}

// observeSame returns a function that returns which objects were deleted meanwhile, whether they were created again or
// not.
func (r *run) observeSame(objects ...client.Object) (problems func() []string) {
	read := func(object client.Object) types.UID {
		r.retryUntilDone("get "+object.GetName(), func(ctx context.Context) error {
			object.SetUID("")
			return client.IgnoreNotFound(r.client.Get(ctx, client.ObjectKeyFromObject(object), object))
		})
		return object.GetUID()
	}
	var before []types.UID
	for _, object := range objects {
		before = append(before, read(object))
	}
	return func() []string {
		var all []string
		for i, object := range objects {
			if now := read(object); now != before[i] || now == "" {
				all = append(all, fmt.Sprintf("%T %s was deleted", object, object.GetName()))
			}
		}
		return all
	}
}

// syncLabels: a template sets a label of namespaces that the tree declares with another value, while commits change
// another label. When the template goes, the label gets the value of the tree.
func syncLabels() scenario {
	labelled := func(r *run, team string) tree {
		t := r.firstTree()
		for path, content := range t {
			if strings.HasSuffix(path, "/namespace.yaml") {
				t[path] = strings.Replace(content, "labels: {", "labels: {"+enforceLabel+": privileged, team: "+team+", ", 1)
			}
		}
		return t
	}
	waitLabels := func(r *run, level, team string) {
		r.waitUntilRight("labels are wrong", settleTimeout, func(ctx context.Context) []string {
			return append(r.differentLabels(ctx, enforceLabel, level), r.differentLabels(ctx, "team", team)...)
		})
	}
	return scenario{
		name: "sync labels", deletes: []string{undeclared, ".of-b", "local"}, drifts: true,
		before: func(r *run) { r.followTree(labelled(r, "one"), nil) },
		do: func(r *run) {
			r.createTemplate("levels", configMap, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: levels("baseline")}
				template.Spec.DriftPolicy = v1alpha1.DriftCorrect
			})
			r.commit(labelled(r, "two"))
		},
		leaderless: func(r *run) { r.commit(labelled(r, "three")) },
		then: func(r *run) {
			r.commit(labelled(r, "four"))
			waitLabels(r, "baseline", "four")
			r.deleteTemplate("levels")
			waitLabels(r, "privileged", "four")
		},
	}
}

// syncConfirm: a commit deletes more namespaces than the limit allows. They are deleted when it is confirmed.
func syncConfirm() scenario {
	return scenario{
		name: "sync confirm", observe: (*run).watchAccess,
		deletes: []string{undeclared, "-goes", "-stays", "local"},
		before:  (*run).followFirstTree,
		do: func(r *run) {
			r.commit(r.treeWithoutGoes().with(tree{
				"RUN-b/RUN-stays/namespace.yaml": "", "RUN-b/RUN-adopted/namespace.yaml": namespaceFile("RUN-adopted"),
			}))
			r.waitPendingDeletions("goes", "stays")
			r.confirm()
		},
		then: func(r *run) { r.commit(r.firstTree()) },
	}
}

// syncChurn: administrators commit faster than nstpl-sync follows. The limit allows the deletion of all namespaces that
// the commits create, because nothing is deleted while a declared namespace waits for its deletion to end.
func syncChurn() scenario {
	return scenario{
		name: "sync churn", observe: (*run).watchAccess,
		deletes: []string{
			undeclared, "-old", "-new", "-goes", "-step", ".of-b", "local", "edited",
		},
		before: func(r *run) {
			r.followTree(r.firstTree(), &v1alpha1.DeletionLimit{Namespaces: new(int32(10)), Percent: new(int32(100))})
		},
		do: func(r *run) {
			for i := range 6 {
				step := fmt.Sprint("RUN-step", i)
				t := []tree{r.renamedTree(), r.treeWithoutGoes(), r.firstTree()}[i%3]
				r.commit(t.with(tree{
					step + "/" + step + "-ns/namespace.yaml": namespaceFile(step + "-ns"),
					step + "/binding.yaml":                   binding("of-"+step, "view"),
				}))
				pause(r.ctx, time.Duration(i)*100*time.Millisecond)
			}
			r.commit(r.renamedTree())
		},
		leaderless: func(r *run) { r.commit(r.firstTree()) },
		then:       func(r *run) { r.commit(r.renamedTree()) },
	}
}

// waitPendingDeletions waits until the status lists the namespaces that would be deleted, which still exist.
func (r *run) waitPendingDeletions(shorts ...string) {
	r.waitUntilRight("deletions are not pending", settleTimeout, func(ctx context.Context) []string {
		repository := &v1alpha1.PolicyRepository{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("repo")}, repository); err != nil {
			return []string{err.Error()}
		}
		pending := repository.Status.PendingDeletions
		if pending == nil || pending.Commit != r.commits[len(r.commits)-1] || int(pending.Total) != len(shorts) {
			return []string{fmt.Sprintf("they are %+v", pending)}
		}
		return nil
	})
	for _, short := range shorts {
		ns := &corev1.Namespace{}
		r.retryUntilDone("read namespace "+short, func(ctx context.Context) error {
			return r.client.Get(ctx, client.ObjectKey{Name: r.name(short)}, ns)
		})
		if r.err == nil && ns.DeletionTimestamp != nil {
			r.fail(fmt.Errorf("namespace %s is deleted without a confirmation", ns.Name))
		}
	}
}

// confirm confirms the last commit.
func (r *run) confirm() {
	if r.err == nil {
		r.annotateRepository(v1alpha1.ConfirmedCommitAnnotation, r.commits[len(r.commits)-1])
	}
}
