package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
)

// gitDir returns the folder of the Git repositories.
func (c *testCluster) gitDir() string { return filepath.Join(c.dir, "git") }

// startGit starts the Git server, unless it runs.
func (c *testCluster) startGit() error {
	if c.git != nil {
		return nil
	}
	if err := os.Mkdir(c.gitDir(), 0o700); err != nil {
		return err
	}
	var err error
	c.git, err = gittest.StartHTTPS(c.ctx, c.gitDir(), gittest.HTTPS{Wrap: func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.gitFails.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			git.ServeHTTP(w, r)
		})
	}})
	return err
}

// prepareSync starts nstpl-sync, has it forget the repositories of earlier runs, and creates an empty repository.
func (r *run) prepareSync() {
	if r.err != nil {
		return
	}
	if err := r.startGit(); err != nil {
		r.fail(err)
		return
	}
	r.retryUntilDone("delete the PolicyRepositories of earlier runs", func(ctx context.Context) error {
		return r.client.DeleteAllOf(ctx, &v1alpha1.PolicyRepository{})
	})
	var err error
	if r.repository, err = gittest.Create(r.ctx, r.gitDir(), r.id+".git"); err != nil {
		r.fail(err)
		return
	}
	if err := r.startAll(r.ctx); err != nil {
		r.fail(err)
	}
}

// commit commits a tree, and asks for a synchronization if the repository is followed.
func (r *run) commit(t tree) {
	if r.err != nil {
		return
	}
	files := map[string]string{}
	for name, content := range t {
		inRun := func(text string) string { return strings.ReplaceAll(text, "RUN", r.id) }
		files[path.Join(r.name("tree"), inRun(name))] = inRun(content)
	}
	hash, err := r.repository.Add(r.ctx, gittest.Commit{Files: files})
	if err != nil {
		r.fail(err)
		return
	}
	r.commits, r.committed = append(r.commits, hash), files
	if r.isFollowed {
		r.annotateRepository(v1alpha1.SyncRequestedAnnotation, r.request())
	}
}

// request returns the value with which the last commit is requested.
func (r *run) request() string { return strconv.Itoa(len(r.commits)) }

func (r *run) annotateRepository(key, value string) {
	r.patch(&v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{Name: r.name("repo")}},
		metadataChange("annotations", key, value))
}

// follow creates the PolicyRepository. The server is asked only on request, so that what is lost is not made up for at
// the end of an interval.
func (r *run) follow(limit *v1alpha1.DeletionLimit) {
	if r.err != nil {
		return
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: r.name("git")},
		StringData: map[string]string{"ca.crt": string(r.git.CA)},
	}
	r.create(secret)
	r.create(&v1alpha1.PolicyRepository{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name("repo"), Annotations: map[string]string{v1alpha1.SyncRequestedAnnotation: r.request()},
		},
		Spec: v1alpha1.PolicyRepositorySpec{
			Git: &v1alpha1.GitSource{
				URL:       r.git.URL + "/" + r.id + ".git",
				SecretRef: &v1alpha1.SecretReference{Name: secret.Name},
			},
			Path: r.name("tree"), Interval: &metav1.Duration{Duration: time.Hour}, DeletionLimit: limit,
		},
	})
	r.isFollowed = true
}

// syncProblems returns what is incorrect in the status of the PolicyRepository, and which namespaces are not where the
// last commit has them.
func (r *run) syncProblems(ctx context.Context, namespaces []corev1.Namespace) []string {
	if !r.isFollowed {
		return nil
	}
	repository := &v1alpha1.PolicyRepository{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("repo")}, repository); err != nil {
		return []string{err.Error()}
	}
	status, last := repository.Status, r.commits[len(r.commits)-1]
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || status.ObservedGeneration != repository.Generation ||
		ready.ObservedGeneration != repository.Generation {
		return []string{fmt.Sprintf("the PolicyRepository is not Ready: %+v", ready)}
	}
	if want := (v1alpha1.RepositoryCommits{Fetched: last, Vetted: last, Applied: last}); status.Commits != want {
		return []string{fmt.Sprintf("the commits are %+v instead of %s", status.Commits, last)}
	}
	if status.PendingDeletions != nil || status.ViolationCount > 0 || len(status.Failures) > 0 ||
		status.RequestedAt != repository.Annotations[v1alpha1.SyncRequestedAnnotation] {
		return []string{fmt.Sprintf("the status is that of an earlier moment: %+v", status)}
	}
	return r.misplaced(namespaces)
}

// misplaced returns the namespaces of the last commit that do not exist or are not in the policyspace of their
// directory. The one that existed before and may not be adopted is in none.
func (r *run) misplaced(namespaces []corev1.Namespace) []string {
	places := map[string]string{}
	for _, ns := range namespaces {
		places[ns.Name] = ns.Labels[v1alpha1.PolicySpaceLabel]
	}
	var all []string
	for file := range r.committed {
		if path.Base(file) != "namespace.yaml" {
			continue
		}
		name, want := path.Base(path.Dir(file)), path.Base(path.Dir(path.Dir(file)))
		if name == r.name("existing") {
			want = ""
		}
		if place, exists := places[name]; !exists || place != want {
			all = append(all, fmt.Sprintf("namespace %s is in policyspace %q instead of %q (it exists: %t)", name, place,
				want, exists))
		}
	}
	return all
}

// noteSync adds the PolicyRepository, the record of created objects and the cluster-scoped objects of RBAC to a state.
func (r *run) noteSync(ctx context.Context, s state) error {
	repository := &v1alpha1.PolicyRepository{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("repo")}, repository); err != nil {
		return err
	}
	repository.Spec = v1alpha1.PolicyRepositorySpec{}
	delete(repository.Annotations, v1alpha1.SyncRequestedAnnotation)
	// The history depends on which commits nstpl-sync has seen.
	repository.Status.RequestedAt, repository.Status.LastSyncTime, repository.Status.History = "", nil, nil
	r.note(s, "policyrepository "+repository.Name, repository)

	names := map[types.UID]string{}
	for _, list := range []client.ObjectList{
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &v1alpha1.NamespaceTemplateList{},
		&v1alpha1.PolicySpaceList{}, &corev1.NamespaceList{},
	} {
		if err := r.client.List(ctx, list); err != nil {
			return err
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*"), "List")
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			names[object.GetUID()] = kind + " " + object.GetName()
			if strings.HasPrefix(kind, "v1.Cluster") {
				r.note(s, strings.ToLower(strings.TrimPrefix(kind, "v1."))+" "+object.GetName(), object)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.noteRecord(ctx, s, names)
}

// noteRecord adds the names of the objects that nstpl-sync has recorded as created.
func (r *run) noteRecord(ctx context.Context, s state, names map[types.UID]string) error {
	record := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: "nstpl-sync-" + r.name("repo")}
	if err := r.client.Get(ctx, key, record); err != nil {
		return err
	}
	var created []string
	for uid := range strings.FieldsSeq(record.Data["created"]) {
		name := names[types.UID(uid)]
		if name == "" {
			name = "an object that does not exist"
		}
		created = append(created, strings.ReplaceAll(name, r.id, "RUN"))
	}
	slices.Sort(created)
	s["record"] = strings.Join(created, "\n")
	return nil
}
