package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
)

// side is who populates a namespace, by the namespace's label.
type side string

const (
	floorSide    side = "floor"
	operatorSide side = "operator"
	// rolloutSide is the operator's too: the namespaces whose template changes.
	rolloutSide side = "rollout"

	sideLabel = "load.nstpl.dev/side"
)

// condition is what a populated namespace says of itself.
func (s side) condition() corev1.NamespaceConditionType {
	if s == floorSide {
		return "floor.nstpl.dev/Populated"
	}
	return v1alpha1.NamespacePopulated
}

// bench is a control plane with both sides running on it, and those who make work for them and watch.
type bench struct {
	sizes     sizes
	progress  io.Writer
	dir       string // for the operator
	client    kubernetes.Interface
	templates client.Client
	operator  *operator
	populated *sightings
	made      map[side]int // namespaces
	table     table
	// fail ends the run because something has ended by itself.
	fail context.CancelCauseFunc
}

// start installs the operator and starts both sides. What it starts ends with ctx.
func (b *bench) start(ctx context.Context, cluster *controlplane.Cluster) error {
	install := exec.CommandContext(ctx, cluster.Kubectl, "apply", "--kustomize", "manifests", "--kubeconfig", cluster.Kubeconfig)
	if output, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install the operator: %w:\n%s", err, output)
	}
	var err error
	if b.client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if b.templates, err = client.New(cluster.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.dir, "operator.kubeconfig")
	if err := operatorKubeconfig(ctx, cluster, b.client, kubeconfig); err != nil {
		return fmt.Errorf("get credentials for the operator: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	f, err := newFloor(config)
	if err != nil {
		return err
	}
	changed, err := b.watch(ctx, sideLabel, b.client.CoreV1().Namespaces().Watch)
	if err != nil {
		return err
	}
	go func() { b.fail(follow(ctx, changed, b.look)) }()
	created, err := b.watch(ctx, sideLabel+"="+string(floorSide), f.client.Resource(namespaces).Watch)
	if err != nil {
		return err
	}
	go f.run(ctx, created, b.fail)
	if b.operator, err = startOperator(ctx, b.sizes.operator, b.dir, b.fail); err != nil {
		return err
	}
	for _, of := range []side{operatorSide, rolloutSide} {
		if err := b.applyTemplate(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

// look is for all events of namespaces.
func (b *bench) look(event watch.Event) {
	ns, ok := event.Object.(*corev1.Namespace)
	if !ok {
		return
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type == side(ns.Labels[sideLabel]).condition() && condition.Status == corev1.ConditionTrue {
			b.populated.see(ns.Name)
		}
	}
}

// applyTemplate creates a template and waits until it is accepted.
func (b *bench) applyTemplate(ctx context.Context, of side) error {
	template, err := newTemplate(of, "a")
	if err != nil {
		return err
	}
	if err := b.templates.Create(ctx, template); err != nil {
		return fmt.Errorf("create template %s: %w", template.Name, err)
	}
	for !apimeta.IsStatusConditionTrue(template.Status.Conditions, v1alpha1.TemplateAccepted) {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if err := b.templates.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
			return err
		}
	}
	return nil
}

// create creates a namespace. What it returns tells when it is seen to be populated.
func (b *bench) create(ctx context.Context, of side, number int) (string, <-chan time.Time, error) {
	name := fmt.Sprintf("%s-%05d", of, number)
	seen := b.populated.expect(name)
	_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{sideLabel: string(of)}},
	}, metav1.CreateOptions{})
	return name, seen, err
}

// one creates a namespace and returns the time from the request until it is seen to be populated.
func (b *bench) one(ctx context.Context, of side) (time.Duration, error) {
	start := time.Now()
	name, seen, err := b.create(ctx, of, b.made[of])
	if err != nil {
		return 0, err
	}
	b.made[of]++
	at, err := await(ctx, "namespace "+name+" populated", seen)
	return at.Sub(start), err
}

// many has namespaces created by several writers and returns the time until the last is seen to be populated.
func (b *bench) many(ctx context.Context, of side, count int) (time.Duration, error) {
	start := time.Now()
	first := b.made[of]
	b.made[of] += count
	seen := make([]<-chan time.Time, count)
	errs := make([]error, count)
	numbers := make(chan int)
	var writers sync.WaitGroup
	for range b.sizes.Writers {
		writers.Go(func() {
			for i := range numbers {
				_, seen[i], errs[i] = b.create(ctx, of, first+i)
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	writers.Wait()
	last := start
	for i := range count {
		if errs[i] != nil {
			return 0, errs[i]
		}
		at, err := await(ctx, fmt.Sprintf("namespace %s-%05d populated", of, first+i), seen[i])
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(start), nil
}

// say tells what is going on.
func (b *bench) say(format string, arguments ...any) {
	fmt.Fprintf(b.progress, format+"\n", arguments...)
}
