package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

// maxWaiting is the number of namespaces that may wait to be populated before no others are created. It is reached only
// if the operator is far behind.
const maxWaiting = 500

// maxRequests is the number of requests at a time that create namespaces. If many more were sent to an API server that
// cannot answer as many, all of them would time out. Namespaces that wait for their request are late, so the latencies
// show it.
const maxRequests = 16

// population is what it took to create and populate namespaces.
type population struct {
	latencies, requests []time.Duration
	took                time.Duration
	cpu                 time.Duration // the API server's for one namespace
}

// arrivals creates namespaces at a rate, whether or not those before are populated. Latencies count from the time at
// which a namespace was due.
type arrivals struct {
	*bench
	rate float64
	// condition is the one of a populated namespace.
	condition corev1.NamespaceConditionType
	// extra reports whether these namespaces are not what the progress counts.
	extra bool
	// requests has an element for each request at a time.
	requests  chan struct{}
	populated *measure.Sightings

	mu     sync.Mutex
	done   population
	missed int
	err    error // the first
}

// create creates namespaces until there is no next one, and waits until all are populated.
func (a *arrivals) create(ctx context.Context, next func(index int) (*corev1.Namespace, bool)) (population, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil) // ends the watch
	if err := a.follow(ctx, fail); err != nil {
		return a.done, err
	}
	start := time.Now()
	a.requests = make(chan struct{}, maxRequests)
	slots := make(chan struct{}, maxWaiting)
	var wait sync.WaitGroup
	for i := 0; ; i++ {
		due := start.Add(time.Duration(float64(i) / a.rate * float64(time.Second)))
		if measure.Pause(ctx, time.Until(due)) != nil {
			break
		}
		ns, ok := next(i)
		if !ok {
			break
		}
		slots <- struct{}{} // when ctx ends, those that have the slots return theirs
		wait.Go(func() {
			a.record(a.one(ctx, ns, due))
			if !a.extra {
				a.progress.done.Add(1)
			}
			<-slots
		})
	}
	wait.Wait()
	a.done.took = time.Since(start)
	if a.missed > 0 {
		return a.done, fmt.Errorf("%d namespaces were not created and populated; the first: %w", a.missed, a.err)
	}
	return a.done, context.Cause(ctx)
}

// follow records the times at which namespaces are populated, until ctx ends.
func (a *arrivals) follow(ctx context.Context, fail context.CancelCauseFunc) error {
	a.populated = measure.NewSightings()
	changed, err := measure.Watch(ctx, a.client, "", a.client.CoreV1().Namespaces().Watch)
	if err != nil {
		return err
	}
	go func() {
		fail(measure.Follow(ctx, changed, func(event watch.Event) {
			ns, ok := event.Object.(*corev1.Namespace)
			if !ok || event.Type == watch.Deleted {
				return
			}
			for _, is := range ns.Status.Conditions {
				if is.Type == a.condition && is.Status == corev1.ConditionTrue {
					a.populated.Record(ns.Name)
				}
			}
		}))
	}()
	return nil
}

// one creates a namespace and returns the time of the request, and the time until it was populated.
func (a *arrivals) one(
	ctx context.Context, ns *corev1.Namespace, due time.Time,
) (request, latency time.Duration, err error) {
	select {
	case a.requests <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	seen := a.populated.Expect(ns.Name)
	start := time.Now()
	_, err = a.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	request = time.Since(start)
	<-a.requests
	if err != nil {
		return 0, 0, err
	}
	select {
	case at := <-seen:
		return request, at.Sub(due), nil
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("namespace %s is not populated: %w", ns.Name, context.Cause(ctx))
	}
}

func (a *arrivals) record(request, latency time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.done.requests, a.done.latencies = append(a.done.requests, request), append(a.done.latencies, latency)
		return
	}
	if a.missed++; a.err == nil {
		a.err = err
	}
}

// newNamespace returns a namespace of the content.
func newNamespace(number int) *corev1.Namespace {
	labels := labelsOf(number)
	labels[v1alpha1.PolicySpaceLabel] = teamName(number / namespacesPerTeam)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(number), Labels: labels}}
}

// listed returns a function that returns namespaces one after the other.
func listed(count int, one func(index int) *corev1.Namespace) func(int) (*corev1.Namespace, bool) {
	return func(index int) (*corev1.Namespace, bool) {
		if index >= count {
			return nil, false
		}
		return one(index), true
	}
}

// measurePopulation creates the namespaces that the content lacks.
func (b *bench) measurePopulation(ctx context.Context) error {
	if err := b.recordPopulated(ctx); err != nil { // since the last size, or an earlier failure
		return err
	}
	var missing []int
	for i := range int(b.content) {
		if !b.namespaces[i] {
			missing = append(missing, i)
		}
	}
	before, err := b.operator.AllMetrics(ctx)
	if err != nil {
		return err
	}
	b.progress.part(fmt.Sprintf("population at %g namespaces per second", b.options.rate), len(missing))
	var done population
	var failed error
	work, err := measure.During(ctx, b.client, func() error {
		done, failed = (&arrivals{
			bench: b, rate: b.options.rate, condition: v1alpha1.NamespacePopulated,
		}).create(ctx, listed(len(missing),
			func(i int) *corev1.Namespace { return newNamespace(missing[i]) }))
		return nil
	})
	if err := errors.Join(b.recordPopulated(ctx), failed); err != nil {
		if len(done.latencies) > len(missing)/2 {
			b.addPopulation(done) // of those that were populated
		}
		return err
	}
	if err != nil {
		return err
	}
	b.printRequests("population", work)
	after, err := b.operator.AllMetrics(ctx)
	if err != nil {
		return err
	}
	b.addPopulation(done)
	count := time.Duration(len(missing))
	b.compare(measurement{Name: "API server's CPU time for a namespace", Unit: "ms", Goal: ratio(1.1)},
		measure.Milliseconds(work.CPU/count), measure.Milliseconds(b.bare.cpu))
	b.add(measurement{Name: "operator's CPU time for a namespace", Unit: "ms"},
		measure.Milliseconds((after.CPU()-before.CPU())/count))
	b.writesPerNamespace = operatorWrites(work.Requests) / float64(count)
	b.compare(measurement{Name: "writes for a namespace"}, b.writesPerNamespace, objectsPerNamespace+1)
	return nil
}

// recordPopulated records which namespaces exist and are populated.
func (b *bench) recordPopulated(ctx context.Context) error {
	// The context of the step may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	list, err := b.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	populated := map[string]bool{}
	for _, ns := range list.Items {
		for _, condition := range ns.Status.Conditions {
			if condition.Type == v1alpha1.NamespacePopulated && condition.Status == corev1.ConditionTrue {
				populated[ns.Name] = true
			}
		}
	}
	for number := range int(b.content) {
		b.namespaces[number] = populated[namespaceName(number)]
	}
	return nil
}

func (b *bench) addPopulation(done population) {
	if len(done.latencies) == 0 {
		return
	}
	goals := map[int]*goal{50: ratio(1.2), 95: ratio(1.5)}
	for _, p := range []int{50, 95, 99} {
		b.compare(measurement{
			Name: fmt.Sprintf("namespace populated, at %g per second: p%d", b.options.rate, p), Unit: "ms",
			Goal: goals[p],
		}, measure.Milliseconds(measure.Percentile(done.latencies, p)),
			measure.Milliseconds(measure.Percentile(b.bare.latencies, p)))
	}
	for _, p := range []int{50, 99} {
		b.compare(measurement{
			Name: fmt.Sprintf("request that creates one of them: p%d", p), Unit: "ms",
		}, measure.Milliseconds(measure.Percentile(done.requests, p)),
			measure.Milliseconds(measure.Percentile(b.bare.population.requests, p)))
	}
	b.compare(measurement{Name: "time per namespace in which all were created and populated", Unit: "ms"},
		measure.Milliseconds(done.took)/float64(len(done.latencies)),
		measure.Milliseconds(b.bare.took)/float64(len(b.bare.latencies)))
}
