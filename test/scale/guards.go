package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/test/measure"
)

// guardLabel selects the namespaces of a template that requires permission at some times.
const guardLabel = "scale.nstpl.dev/guard"

// guards lets a user create namespaces for templates that begin or cease to require permission.
type guards struct {
	*bench
	// mayFail reports whether admission may fail for a moment, because a replica has just ended.
	mayFail                bool
	denied, slipped, early atomic.Int64
}

// togglers is how many templates begin or cease to require permission at a time.
const togglers = 2

// startGuards writes templates one after the other, of which each requires permission at some times, while a user
// without it creates namespaces for them. It goes on until the returned function is called, which adds the figures.
func (b *bench) startGuards(ctx context.Context) (end func() error) {
	g := &guards{bench: b}
	start := time.Now()
	var ended atomic.Bool
	var count atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, togglers)
	for toggler := range togglers {
		wait.Go(func() {
			for index := toggler; !ended.Load() || index == toggler; index += togglers {
				if errs[toggler] = g.toggle(ctx, index); errs[toggler] != nil {
					return
				}
				count.Add(1)
			}
		})
	}
	return func() error {
		ended.Store(true)
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		g.addFigures(time.Since(start), int(count.Load()))
		return nil
	}
}

// addFigures adds what happened while a number of templates began and ceased to require permission.
func (g *guards) addFigures(took time.Duration, count int) {
	const prefix = "templates that begin and cease to require permission: "
	g.add(measurement{Name: prefix + "time for each", Unit: "ms"}, togglers*measure.Milliseconds(took)/float64(count))
	g.add(measurement{Name: prefix + "namespaces denied, for each"}, float64(g.denied.Load())/float64(count))
	g.add(measurement{Name: prefix + "namespaces that are not denied", Goal: atMost(0)}, float64(g.slipped.Load()))
	g.add(measurement{Name: prefix + "namespaces that open before they are populated", Goal: atMost(0)},
		float64(g.early.Load()))
}

// createCreator creates the user who creates namespaces.
func (b *bench) createCreator(ctx context.Context) error {
	const name = "namespace-creator"
	for _, args := range [][]string{
		{"create", "clusterrole", name, "--verb=create,patch", "--resource=namespaces,configmaps"},
		{"create", "clusterrolebinding", name, "--clusterrole=" + name, "--user=" + name},
	} {
		if _, err := b.cluster.RunKubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	config, err := b.cluster.UserConfig(name)
	if err != nil {
		return err
	}
	b.creator, err = kubernetes.NewForConfig(config)
	return err
}

// toggle creates a template, lets it begin to require permission, and then cease to. Every second template requires it
// from its creation on.
func (g *guards) toggle(ctx context.Context, index int) error {
	name := fmt.Sprintf("guard-%d-%05d", g.content, index)
	var annotations map[string]any
	isGuarded := index%2 == 1
	if isGuarded {
		annotations = map[string]any{v1alpha1.RequirePermissionAnnotation: "true"}
	}
	template := newTemplate(name, annotations, map[string]any{"matchLabels": map[string]any{guardLabel: name}},
		profileObject())
	if err := g.apply(ctx, template); err != nil {
		return err
	}
	if !isGuarded {
		if err := g.createOpen(ctx, name, "before"); err != nil {
			return err
		}
		if err := g.require(ctx, name, `"true"`); err != nil {
			return err
		}
	}
	if err := errors.Join(g.tryCreation(ctx, name), g.tryLabel(ctx, name), g.require(ctx, name, "null")); err != nil {
		return err
	}
	return g.createOpen(ctx, name, "after")
}

// require sets whether a template requires permission, as a JSON value of the annotation.
func (g *guards) require(ctx context.Context, template, value string) error {
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.RequirePermissionAnnotation, value)
	_, err := g.dynamic.Resource(v1alpha1.GroupVersion.WithResource("namespacetemplates")).
		Patch(ctx, template, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// namespaceOf returns a namespace that only the template selects.
func namespaceOf(template, suffix string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: template + "-" + suffix, Labels: map[string]string{guardLabel: template, unselectedLabel: "true"},
	}}
}

// createOpen creates a namespace for a template that does not require permission.
func (g *guards) createOpen(ctx context.Context, template, suffix string) error {
	ns := namespaceOf(template, suffix)
	// The leader lifts a requirement a moment after the template ceases to have it.
	err := g.untilAllowed(ctx, func() error {
		_, err := g.creator.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return g.writeWhenOpen(ctx, ns.Name)
}

// writeWhenOpen writes into a namespace as soon as that is possible. The object of its template must be there by then.
func (g *guards) writeWhenOpen(ctx context.Context, namespace string) error {
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	if err := g.untilAllowed(ctx, func() error {
		_, err := g.creator.CoreV1().ConfigMaps(namespace).Create(ctx, own, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	_, err := g.client.CoreV1().ConfigMaps(namespace).Get(ctx, profileObject().GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		g.early.Add(1)
		return nil
	}
	return err
}

// untilAllowed repeats a request that admission denies or delays, or for which it fails if it may.
func (g *guards) untilAllowed(ctx context.Context, request func() error) error {
	for {
		err := request()
		isFailure := g.mayFail && apierrors.IsInternalError(err)
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsForbidden(err) && !isFailure {
			return err
		}
		if err := measure.Pause(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// tryCreation tries to create a namespace for a template that requires permission.
func (g *guards) tryCreation(ctx context.Context, template string) error {
	_, err := g.creator.CoreV1().Namespaces().Create(ctx, namespaceOf(template, "denied"), metav1.CreateOptions{})
	return g.count(err)
}

// tryLabel tries to label a namespace for a template that requires permission.
func (g *guards) tryLabel(ctx context.Context, template string) error {
	ns := namespaceOf(template, "other")
	delete(ns.Labels, guardLabel)
	if _, err := g.creator.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, guardLabel, template)
	_, err := g.creator.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return g.count(err)
}

// count counts a write that must be denied because of the template. A denial for another reason is an error.
func (g *guards) count(err error) error {
	switch {
	case err == nil:
		g.slipped.Add(1)
	case slices.Contains(codes.Find(err.Error()), codes.TemplateUse):
		g.denied.Add(1)
	default:
		return err
	}
	return nil
}
