package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

// settleTimeout is the longest time for the state to become correct once all faults are over.
const settleTimeout = 60 * time.Second

// faultyTimeout is the longest time for it while faults last. If each write is answered with status 429, client-go
// repeats every one of them ten times, a second apart, before the operator learns of it.
const faultyTimeout = 10 * settleTimeout

// run separates a trial from the others on its cluster: its templates select only the namespaces that it creates. All
// names begin with its id, except those in its namespaces. After a failure, its methods do nothing: see err.
type run struct {
	*testCluster
	// replicaSet are the replicas to which the fault happens.
	*replicaSet
	trial
	id  string
	err error
	// history has the operations of a quota's clients.
	history *history
	// from is the position in the audit log at which the run begins, and begin the time at which its fault begins.
	from  int
	begin time.Time
	// templates has the declared objects of each template by its short name.
	templates map[string][]*unstructured.Unstructured
	// repository is the Git repository that nstpl-sync follows, or nil. commits are the hashes of its commits, and
	// committed the files of the last one by their paths.
	repository *gittest.Repository
	commits    []string
	committed  map[string]string
	isFollowed bool
	// forAll are the objects that concern the namespaces of other runs, too. They are deleted when the run ends.
	forAll []client.Object
	// suspendedWrites are the forbidden writes of a suspended leader.
	suspendedWrites []string
}

// runLabel is the label of a namespace with the id of its run. Templates can also select by stageLabel.
const (
	runLabel   = "run"
	stageLabel = "stage"
)

func (r *run) name(short string) string { return r.id + "-" + short }

// fail records the first failure.
func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// retryUntilDone repeats a request until it succeeds, because the API server may be down or an answer may be lost.
func (r *run) retryUntilDone(what string, do func(ctx context.Context) error) {
	r.waitUntilRight("cannot "+what, settleTimeout, func(ctx context.Context) []string {
		if err := do(ctx); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// waitUntilRight waits until a function returns no problems.
func (r *run) waitUntilRight(what string, limit time.Duration, wrong func(ctx context.Context) []string) {
	if r.err != nil {
		return
	}
	var last []string
	err := wait.PollUntilContextTimeout(r.ctx, 50*time.Millisecond, limit, true,
		func(ctx context.Context) (bool, error) {
			now := wrong(ctx)
			if ctx.Err() == nil { // otherwise the problems are only caused by the end of ctx
				last = now
			}
			return len(now) == 0, nil
		})
	if err != nil {
		r.fail(fmt.Errorf("%s after %s: %s", what, limit, strings.Join(last, "\n\t")))
	}
}

// checkContinuously calls check again and again until the returned function is called, which returns all problems.
func (r *run) checkContinuously(check func(context.Context) []string) (problems func() []string) {
	ctx, cancel := context.WithCancel(r.ctx)
	var all []string
	var checking sync.WaitGroup
	checking.Go(func() {
		for ctx.Err() == nil {
			all = append(all, check(ctx)...)
			pause(ctx, 5*time.Millisecond)
		}
	})
	return func() []string {
		cancel()
		checking.Wait()
		return all
	}
}

// namespaceNames returns the names of the trial's namespaces.
func (r *run) namespaceNames() []string {
	var names []string
	for i := range r.namespaces {
		names = append(names, r.name(fmt.Sprint("n", i)))
	}
	return names
}

// createNamespaces creates the namespaces with the run's label and others, as pairs of a key and a value.
func (r *run) createNamespaces(pairs ...string) {
	for _, name := range r.namespaceNames() {
		r.create(r.namespace(name, pairs...))
	}
}

// namespace returns a namespace with the run's label and others, as pairs of a key and a value.
func (r *run) namespace(name string, pairs ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: r.id}}}
	for i := 0; i < len(pairs); i += 2 {
		ns.Labels[pairs[i]] = pairs[i+1]
	}
	return ns
}

// inEachNamespace returns what a function finds wrong with each of the run's namespaces.
func (r *run) inEachNamespace(ctx context.Context, wrong func(*corev1.Namespace) string) []string {
	var all []string
	for _, name := range r.namespaceNames() {
		ns := &corev1.Namespace{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			return []string{err.Error()}
		}
		if problem := wrong(ns); problem != "" {
			all = append(all, problem)
		}
	}
	return all
}

// create creates an object. It may exist already if an earlier answer was lost.
func (r *run) create(object client.Object) {
	r.retryUntilDone("create "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(r.client.Create(ctx, object.DeepCopyObject().(client.Object)))
	})
}

// label sets a label of all namespaces; a nil value removes it.
func (r *run) label(key string, value any) {
	for _, name := range r.namespaceNames() {
		r.labelNamespace(name, key, value)
	}
}

func (r *run) labelNamespace(name, key string, value any) {
	r.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metadataChange("labels", key, value))
}

// metadataChange returns a change of a label or an annotation; a nil value removes it.
func metadataChange(field, key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}}
}

// createForAll creates an object that concerns the namespaces of other runs, too. It is deleted when the run ends.
func (r *run) createForAll(object client.Object) {
	r.forAll = append(r.forAll, object)
	r.create(object)
}

// cleanUp deletes the objects that concern other runs, also after a failure.
func (r *run) cleanUp() error {
	var errs []error
	for _, object := range r.forAll {
		errs = append(errs, client.IgnoreNotFound(r.client.Delete(r.ctx, object)))
	}
	return errors.Join(errs...)
}

// patch merges a change into an object.
func (r *run) patch(object client.Object, change map[string]any) {
	r.retryUntilDone("patch "+object.GetName(), func(ctx context.Context) error {
		return r.mergeInto(ctx, object, change)
	})
}

// annotateUnlessGone sets an annotation of an object, after which the operator may delete it; nil removes the
// annotation. The object may be gone already if an earlier answer was lost.
func (r *run) annotateUnlessGone(object client.Object, key string, value any) {
	r.retryUntilDone("annotate "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreNotFound(r.mergeInto(ctx, object, metadataChange("annotations", key, value)))
	})
}

func (r *run) mergeInto(ctx context.Context, object client.Object, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return r.client.Patch(ctx, object.DeepCopyObject().(client.Object),
		client.RawPatch("application/merge-patch+json", body))
}

// delete deletes an object, and does not wait until the deletion is complete.
func (r *run) delete(object client.Object) {
	r.retryUntilDone("delete "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreNotFound(r.client.Delete(ctx, object))
	})
}

// templateOption changes a template before it is created.
type templateOption func(*v1alpha1.NamespaceTemplate)

// createTemplate creates a template that selects the run's namespaces.
func (r *run) createTemplate(short, objects string, options ...templateOption) {
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: r.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{runLabel: r.id}},
			},
			DriftPolicy: r.policy,
		},
	}
	template.Spec.Templates = r.parseDeclared(short, objects)
	for _, apply := range options {
		apply(template)
	}
	r.create(template)
}

// updateTemplate has a template declare other objects.
func (r *run) updateTemplate(short, objects string) {
	r.patchTemplate(short, map[string]any{"templates": r.parseDeclared(short, objects)})
}

// patchTemplate merges a change into the spec of a template.
func (r *run) patchTemplate(short string, spec map[string]any) {
	r.patch(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}},
		map[string]any{"spec": spec})
}

func (r *run) deleteTemplate(short string) {
	delete(r.templates, short)
	r.delete(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}})
}

// parseDeclared parses the documents of a YAML text, in which RUN stands for the run's id, and records them as the
// template's declared objects.
func (r *run) parseDeclared(short, text string) []runtime.RawExtension {
	objects := r.decode(text)
	r.templates[short] = objects
	var raw []runtime.RawExtension
	for _, object := range objects {
		data, err := json.Marshal(object.Object)
		if err != nil {
			r.fail(err)
		}
		raw = append(raw, runtime.RawExtension{Raw: data})
	}
	return raw
}

// decode parses the documents of a YAML text, in which RUN stands for the run's id.
func (r *run) decode(text string) []*unstructured.Unstructured {
	objects, err := operator.Decode(strings.ReplaceAll(text, "RUN", r.id))
	if err != nil {
		r.fail(err)
	}
	return objects
}

// createForeignObjects creates the objects of a YAML text in each namespace, as a client other than the operator.
func (r *run) createForeignObjects(text string) {
	for _, name := range r.namespaceNames() {
		r.createIn(name, text)
	}
}

// createIn creates the objects of a YAML text in a namespace.
func (r *run) createIn(namespace, text string) {
	for _, object := range r.decode(text) {
		object.SetNamespace(namespace)
		r.create(object)
	}
}

// createSpace creates a policyspace.
func (r *run) createSpace(short, parent string, hard corev1.ResourceList) {
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}}
	if parent != "" {
		space.Spec.Parent = r.name(parent)
	}
	if hard != nil {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: hard}
	}
	r.create(space)
}

func (r *run) setParent(short, parent string) {
	r.patch(&v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}},
		map[string]any{"spec": map[string]any{"parent": r.name(parent)}})
}

func (r *run) deleteSpace(short string) {
	r.delete(&v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}})
}

// withStage has a template select the namespaces with a stage.
func (r *run) withStage(stage string) templateOption {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels[stageLabel] = stage
	}
}

// inSpace has a template select the namespaces of a policyspace and of its descendants.
func (r *run) inSpace(space string) templateOption {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: hierarchy.DepthLabel(r.name(space)), Operator: metav1.LabelSelectorOpExists},
		}
	}
}

// deletesObjects has a template delete its objects when it is deleted or no longer selects a namespace.
func deletesObjects(template *v1alpha1.NamespaceTemplate) {
	template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
}

// waitAbsent waits until an object does not exist in any namespace.
func (r *run) waitAbsent(like client.Object) {
	r.waitInEach(r.namespaceNames(), like, "objects that must be deleted exist", apierrors.IsNotFound)
}

// waitConfigMap waits until a ConfigMap exists in some namespaces.
func (r *run) waitConfigMap(name string, namespaces []string) {
	like := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.waitInEach(namespaces, like, "ConfigMaps do not exist", func(err error) bool { return err == nil })
}

// waitInEach waits until the answer to a request for an object is right in each of some namespaces.
func (r *run) waitInEach(namespaces []string, like client.Object, what string, isRight func(error) bool) {
	r.waitUntilRight(what, settleTimeout, func(ctx context.Context) []string {
		var wrong []string
		for _, namespace := range namespaces {
			object := like.DeepCopyObject().(client.Object)
			key := client.ObjectKey{Namespace: namespace, Name: like.GetName()}
			if err := r.client.Get(ctx, key, object); !isRight(err) {
				wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
			}
		}
		return wrong
	})
}
