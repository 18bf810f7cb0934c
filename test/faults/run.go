package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// patience is how long anything may take once all faults are over.
const patience = 60 * time.Second

// run is one trial's corner of a world: its templates select the namespaces that it creates, and no others. The names
// of all that it creates begin with its id, except in its namespaces. Its methods do nothing after one has failed: see
// err.
type run struct {
	*world
	trial
	id  string
	err error
	// history is what clients of a quota did.
	history *history
	// from is where the run begins in the audit log, and begin when its fault does.
	from  int
	begin time.Time
	// templates are what each template declares, by its short name.
	templates map[string][]*unstructured.Unstructured
	// zombie is what a leader did that was suspended.
	zombie []string
	// settling is what was still wrong when a run was looked at last.
	settling []string
}

// runLabel carries, on a namespace, the id of the run that it is of; stageLabel what templates select besides.
const (
	runLabel   = "run"
	stageLabel = "stage"
)

func (r *run) name(short string) string { return r.id + "-" + short }

// fail notes the first failure.
func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// insist does something until it succeeds: the API server may be down for a while, or the answer be lost.
func (r *run) insist(what string, do func(ctx context.Context) error) {
	if r.err != nil {
		return
	}
	var last error
	err := wait.PollUntilContextTimeout(r.ctx, 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = do(ctx)
			return last == nil, nil
		})
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", what, errors.Join(last, err)))
	}
}

// await waits until nothing is wrong by a function.
func (r *run) await(what string, limit time.Duration, wrong func(ctx context.Context) []string) {
	if r.err != nil {
		return
	}
	err := wait.PollUntilContextTimeout(r.ctx, 50*time.Millisecond, limit, true,
		func(ctx context.Context) (bool, error) {
			now := wrong(ctx)
			if ctx.Err() == nil { // otherwise it tells of nothing but that
				r.settling = now
			}
			return len(now) == 0, nil
		})
	if err != nil {
		r.fail(fmt.Errorf("%s after %s: %s", what, limit, strings.Join(r.settling, "\n\t")))
	}
}

// namespaceNames returns the names of the namespaces that the trial asks for.
func (r *run) namespaceNames() []string {
	var names []string
	for i := range r.namespaces {
		names = append(names, r.name(fmt.Sprint("n", i)))
	}
	return names
}

// createNamespaces creates the namespaces with labels besides the run's, as pairs of a key and a value.
func (r *run) createNamespaces(pairs ...string) {
	for _, name := range r.namespaceNames() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: r.id}}}
		for i := 0; i < len(pairs); i += 2 {
			ns.Labels[pairs[i]] = pairs[i+1]
		}
		r.create(ns)
	}
}

// create creates an object, which may be there already because an answer was lost.
func (r *run) create(object client.Object) {
	r.insist("create "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(r.client.Create(ctx, object.DeepCopyObject().(client.Object)))
	})
}

// label sets a label of all namespaces; a nil value removes it.
func (r *run) label(key string, value any) {
	for _, name := range r.namespaceNames() {
		r.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	}
}

// patch merges a change into an object.
func (r *run) patch(object client.Object, change map[string]any) {
	body, err := json.Marshal(change)
	if err != nil {
		r.fail(err)
		return
	}
	r.insist("patch "+object.GetName(), func(ctx context.Context) error {
		return r.client.Patch(ctx, object.DeepCopyObject().(client.Object),
			client.RawPatch("application/merge-patch+json", body))
	})
}

// delete deletes an object, and does not wait until it is gone.
func (r *run) delete(object client.Object) {
	r.insist("delete "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreNotFound(r.client.Delete(ctx, object))
	})
}

// option changes a template before it is created.
type option func(*v1alpha1.NamespaceTemplate)

// declare creates a template that selects the run's namespaces.
func (r *run) declare(short, objects string, options ...option) {
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: r.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{runLabel: r.id}},
			},
			DriftPolicy: r.policy,
		},
	}
	template.Spec.Templates = r.declared(short, objects)
	for _, apply := range options {
		apply(template)
	}
	r.create(template)
}

// edit has a template declare other objects.
func (r *run) edit(short, objects string) {
	r.patch(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}},
		map[string]any{"spec": map[string]any{"templates": r.declared(short, objects)}})
}

// undeclare deletes a template.
func (r *run) undeclare(short string) {
	delete(r.templates, short)
	r.delete(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}})
}

// declared reads the documents of a YAML text, in which RUN stands for the run's id, and remembers that a template
// declares them.
func (r *run) declared(short, text string) []runtime.RawExtension {
	objects, err := decode(strings.ReplaceAll(text, "RUN", r.id))
	if err != nil {
		r.fail(err)
	}
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

func decode(text string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, text)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// foreign creates the objects of a YAML text in each namespace, as somebody who is not the operator.
func (r *run) foreign(text string) {
	objects, err := decode(strings.ReplaceAll(text, "RUN", r.id))
	if err != nil {
		r.fail(err)
		return
	}
	for _, name := range r.namespaceNames() {
		for _, object := range objects {
			own := object.DeepCopy()
			own.SetNamespace(name)
			r.create(own)
		}
	}
}

// space creates a policyspace, or gives it another parent.
func (r *run) space(short, parent string, hard corev1.ResourceList) {
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}}
	if parent != "" {
		space.Spec.Parent = r.name(parent)
	}
	if hard != nil {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: hard}
	}
	r.create(space)
}

func (r *run) parent(short, parent string) {
	r.patch(&v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}},
		map[string]any{"spec": map[string]any{"parent": r.name(parent)}})
}

func (r *run) deleteSpace(short string) {
	r.delete(&v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}})
}

// at has a template select the namespaces of a stage.
func (r *run) at(stage string) option {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels[stageLabel] = stage
	}
}

// below has a template select the namespaces in and below a policyspace.
func (r *run) below(space string) option {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: hierarchy.DepthLabel(r.name(space)), Operator: metav1.LabelSelectorOpExists},
		}
	}
}

// deleting has a template delete its objects where it goes.
func deleting(template *v1alpha1.NamespaceTemplate) {
	template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
}

// lacks waits until an object is in no namespace.
func (r *run) lacks(like client.Object) {
	r.await("objects that are to go are there", patience, func(ctx context.Context) []string {
		var there []string
		for _, name := range r.namespaceNames() {
			object := like.DeepCopyObject().(client.Object)
			if err := r.client.Get(ctx, client.ObjectKey{Namespace: name, Name: like.GetName()},
				object); !apierrors.IsNotFound(err) {
				there = append(there, fmt.Sprintf("%s/%s: %v", name, like.GetName(), err))
			}
		}
		return there
	})
}
