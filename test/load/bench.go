package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
	"nstpl.dev/nstpl/test/operator"
)

// side is a program that populates namespaces. Its value is a label of the namespaces.
type side string

const (
	floorSide    side = "floor"
	operatorSide side = "operator"
	// rolloutSide is also the operator: it has the namespaces of the template that changes.
	rolloutSide side = "rollout"

	sideLabel = "load.nstpl.dev/side"
)

// condition returns the type of the condition of populated namespaces.
func (s side) condition() corev1.NamespaceConditionType {
	if s == floorSide {
		return "floor.nstpl.dev/Populated"
	}
	return v1alpha1.NamespacePopulated
}

// bench is a control plane with both sides, the clients that create work for them, and watches.
type bench struct {
	sizes    sizes
	progress io.Writer
	dir      string // the operator's files
	cluster  *controlplane.Cluster
	client   kubernetes.Interface
	// operator is the running operator, and stopOperator stops it.
	operator     *operator.Process
	stopOperator func() error
	// populated has the times at which namespaces of both sides are populated.
	populated *measure.Sightings
	made      map[side]int
	table     table
	// fail ends the run.
	fail context.CancelCauseFunc
	// background has what goes on until the run ends.
	background sync.WaitGroup
}

// start installs the operator and starts both sides, which end with ctx.
func (b *bench) start(ctx context.Context) (err error) {
	if err := operator.Install(ctx, b.cluster); err != nil {
		return err
	}
	if err := operator.WriteKubeconfig(ctx, b.cluster, b.operatorKubeconfig()); err != nil {
		return err
	}
	// The permissions of the operator, so that the API server handles the floor's requests in the same way.
	config, err := clientcmd.BuildConfigFromFlags("", b.operatorKubeconfig())
	if err != nil {
		return err
	}
	declared, err := objects("a")
	if err != nil {
		return err
	}
	f, err := measure.NewFloor(config, declared, floorSide.condition())
	if err != nil {
		return err
	}
	created, err := measure.Watch(ctx, b.client, sideLabel+"="+string(floorSide),
		f.Client.Resource(measure.Namespaces).Watch)
	if err != nil {
		return err
	}
	b.background.Go(func() { f.Run(ctx, created, b.fail) })
	if err := b.follow(ctx, sideLabel, b.client.CoreV1().Namespaces().Watch, b.handle); err != nil {
		return err
	}
	if err := b.startOperator(ctx); err != nil {
		return err
	}
	for _, of := range []side{operatorSide, rolloutSide} {
		if err := b.applyTemplate(ctx, of, "a"); err != nil {
			return err
		}
		if _, err := b.cluster.RunKubectl(ctx, "", "wait", "--for=condition=Accepted",
			"namespacetemplate/"+templateName(of)); err != nil {
			return err
		}
	}
	return nil
}

// follow passes the events of a watch to handle until the run ends. An earlier end of the watch ends the run.
func (b *bench) follow(ctx context.Context, selector string, start measure.StartWatch, handle func(watch.Event)) error {
	events, err := measure.Watch(ctx, b.client, selector, start)
	if err != nil {
		return err
	}
	b.background.Go(func() { b.fail(measure.Follow(ctx, events, handle)) })
	return nil
}

// handle handles events of namespaces.
func (b *bench) handle(event watch.Event) {
	ns, ok := event.Object.(*corev1.Namespace)
	if !ok {
		return
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type == side(ns.Labels[sideLabel]).condition() && condition.Status == corev1.ConditionTrue {
			b.populated.Record(ns.Name)
		}
	}
}

func (b *bench) applyTemplate(ctx context.Context, of side, stage string) error {
	body, err := template(of, stage)
	if err != nil {
		return err
	}
	_, err = b.cluster.RunKubectl(ctx, string(body), "apply", "--server-side", "--filename=-")
	return err
}

func name(of side, number int) string {
	return fmt.Sprintf("%s-%05d", of, number)
}

// create creates a namespace. The returned channel receives the time at which it is populated.
func (b *bench) create(ctx context.Context, of side, number int) (<-chan time.Time, error) {
	seen := b.populated.Expect(name(of, number))
	_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name(of, number), Labels: map[string]string{sideLabel: string(of)}},
	}, metav1.CreateOptions{})
	return seen, err
}

// createConcurrently creates namespaces with a number of concurrent clients. It returns the time from the first request
// until the last namespace is populated.
func (b *bench) createConcurrently(ctx context.Context, of side, count, writers int) (time.Duration, error) {
	start, first := time.Now(), b.made[of]
	b.made[of] += count
	seen := make([]<-chan time.Time, count)
	errs := make([]error, count)
	workqueue.ParallelizeUntil(ctx, writers, count, func(i int) {
		seen[i], errs[i] = b.create(ctx, of, first+i)
	})
	last := start
	for i := range count {
		if errs[i] != nil {
			return 0, errs[i]
		}
		at, err := measure.Await(ctx, "namespace "+name(of, first+i)+" populated", seen[i])
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(start), nil
}

// createAlternately creates namespaces one by one, alternating between floor and operator.
func (b *bench) createAlternately(ctx context.Context, enough func(pairs int) bool) (latencies, error) {
	all := latencies{}
	for pairs := 0; !enough(pairs); pairs++ {
		for _, of := range []side{floorSide, operatorSide} {
			took, err := b.createConcurrently(ctx, of, 1, 1)
			if err != nil {
				return nil, err
			}
			all[of] = append(all[of], took)
		}
	}
	return all, nil
}

// printProgress prints progress.
func (b *bench) printProgress(format string, arguments ...any) {
	fmt.Fprintf(b.progress, format+"\n", arguments...)
}
