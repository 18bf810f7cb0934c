package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

// probeRate is how many namespaces are created per second while something else happens.
const probeRate = 2

// requestsOfOthers are the writes of clients other than the operator: of this program, and of Kubernetes in each
// namespace. The operator applies objects, which has a verb of its own.
var requestsOfOthers = []string{
	"POST namespaces", "POST serviceaccounts", "POST configmaps", "PUT resourcequotas/status",
	"PUT namespaces/finalize",
	"POST policyspaces", "PATCH policyspaces", "POST serviceaccounts/token",
}

// operatorWrites counts the requests with which the operator has written. Requests that only ask, such as reviews of
// permissions, are POSTs and write nothing. A dry run is not a write.
func operatorWrites(made measure.Requests) float64 {
	own := measure.Requests{}
	for kind, count := range made {
		if !slices.Contains(requestsOfOthers, kind) && !strings.HasSuffix(kind, "reviews") {
			own[kind] = count
		}
	}
	return own.Writes()
}

// probes creates namespaces at a slow rate while something else happens, until it is over.
func (b *bench) probes(ctx context.Context, prefix string, enough func(count int) bool) (population, error) {
	team := teamName(min(1, b.content.teams()-1))
	a := &arrivals{bench: b, rate: probeRate, condition: v1alpha1.NamespacePopulated, extra: true}
	return a.create(ctx, func(index int) (*corev1.Namespace, bool) {
		if enough(index) {
			return nil, false
		}
		ns := newNamespace(7) // its own object comes from a hand-written template
		ns.Name = fmt.Sprintf("probe-%s-%d-%04d", prefix, b.content, index)
		ns.Labels[v1alpha1.PolicySpaceLabel] = team
		return ns, true
	})
}

// change is a change that the operator carries out in many namespaces.
type change struct {
	name string
	// resource are the objects whose watch shows when it is over, and selector selects them.
	resource schema.GroupVersionResource
	selector string
	make     func(context.Context) error
	// handle handles an event and reports whether the change is over.
	handle func(watch.Event) bool
	// alone means that no namespace is created meanwhile, nor shortly before.
	alone bool
}

// quietTime is longer than the operator remembers that a user waited for it.
const quietTime = 15 * time.Second

// carriedOut is what a change has cost.
type carriedOut struct {
	took   time.Duration
	probes population
	idle   []time.Duration
	writes float64
}

// before creates namespaces before a change, or waits if there are to be none.
func (b *bench) before(ctx context.Context, c change) (carriedOut, error) {
	if c.alone {
		b.progress.part("nothing before the "+c.name, 0)
		return carriedOut{}, measure.Pause(ctx, quietTime)
	}
	b.progress.part("some namespaces before the "+c.name, 0)
	idle, err := b.probes(ctx, "before-"+c.name, func(count int) bool { return count == b.options.probes })
	return carriedOut{idle: idle.latencies}, err
}

// carryOut makes a change and creates namespaces meanwhile, unless it is to be alone.
func (b *bench) carryOut(ctx context.Context, c change) (carriedOut, error) {
	result, err := b.before(ctx, c)
	if err != nil {
		return result, err
	}
	events, err := measure.Watch(ctx, b.client, c.selector, b.metadata.Resource(c.resource).Watch)
	if err != nil {
		return result, err
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	over, ended := make(chan time.Time, 1), make(chan error, 1)
	work, err := measure.During(ctx, b.client, func() error {
		start := time.Now()
		if err := c.make(ctx); err != nil {
			return err
		}
		var once sync.Once
		go func() {
			ended <- measure.Follow(following, events, func(event watch.Event) {
				if c.handle(event) {
					once.Do(func() { over <- time.Now() })
				}
			})
		}()
		isOver := func() bool { return len(over) > 0 || len(ended) > 0 }
		var failed error
		if !c.alone {
			result.probes, failed = b.probes(ctx, c.name, func(count int) bool { return count > 0 && isOver() })
		}
		select {
		case at := <-over:
			result.took = at.Sub(start)
		case err := <-ended:
			return errors.Join(err, failed)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), failed)
		}
		return failed
	})
	result.writes = operatorWrites(work.Requests)
	b.printRequests(c.name, work)
	return result, err
}

// addChange adds the figures of a change that needs a number of writes, in addition to those for the namespaces that
// were created meanwhile.
func (b *bench) addChange(name string, result carriedOut, floor time.Duration, writes int) {
	b.compare(measurement{Name: name + ": time", Unit: "s", Growth: linear}, result.took.Seconds(), floor.Seconds())
	expected := float64(writes) + float64(len(result.probes.latencies))*b.writesPerNamespace
	b.compare(measurement{Name: name + ": writes, to changes", Growth: linear, Goal: ratio(1)}, result.writes, expected)
	if len(result.probes.latencies) == 0 {
		return
	}
	b.compare(measurement{Name: name + ": a new namespace meanwhile, to one before: p95", Unit: "ms", Goal: ratio(1.5)},
		measure.Milliseconds(measure.Percentile(result.probes.latencies, 95)),
		measure.Milliseconds(measure.Percentile(result.idle, 95)))
}

// measureRollout changes the template that selects all namespaces: first while nothing else happens, and then while
// namespaces are created.
func (b *bench) measureRollout(ctx context.Context) error {
	if err := b.rollOut(ctx, "rollout to all namespaces, alone", true); err != nil {
		return err
	}
	return b.rollOut(ctx, "rollout to all namespaces", false)
}

func (b *bench) rollOut(ctx context.Context, name string, alone bool) error {
	b.stage++
	stage := fmt.Sprintf("stage-%d", b.stage)
	resource := measure.ResourceOf(baselineObjects()[0])
	left, count := map[string]bool{}, 0
	result, err := b.carryOut(ctx, change{
		name: "rollout", resource: resource, selector: stageLabel, alone: alone,
		make: func(ctx context.Context) error {
			// Listed here, since other namespaces were created before.
			list, err := b.metadata.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: stageLabel})
			if err != nil {
				return err
			}
			for _, object := range list.Items {
				left[object.Namespace] = true
			}
			count = len(left)
			b.progress.part("rollout", count)
			return b.apply(ctx, baselineTemplate(stage))
		},
		handle: func(event watch.Event) bool {
			if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok && object.Labels[stageLabel] == stage &&
				left[object.Namespace] {
				delete(left, object.Namespace)
				b.progress.done.Add(1)
			}
			return len(left) == 0
		},
	})
	if err != nil {
		return err
	}
	b.addChange(name, result, b.bare.rollout*time.Duration(count), count)
	return nil
}

func (b *bench) apply(ctx context.Context, object *unstructured.Unstructured) error {
	_, err := b.dynamic.Resource(resourceOf(object)).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "scale", Force: true})
	return err
}

// access follows the RoleBindings that namespaces inherit from the space that they leave and from the one that they
// enter. Both grant the same to the same group.
type access struct {
	from, to string
	has      map[string]map[string]bool // by namespace and policy space
	gaps     int
	left     int // the namespaces that have not moved yet
}

// handle handles an event. It reports whether a namespace has moved with it.
func (a *access) handle(event watch.Event) bool {
	object, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok || a.has[object.Namespace] == nil { // the namespace was created meanwhile
		return false
	}
	has := a.has[object.Namespace]
	before := has[a.to] && !has[a.from]
	has[object.Labels[v1alpha1.TemplateNameLabel]] = event.Type != watch.Deleted
	if !has[a.from] && !has[a.to] {
		a.gaps++
	}
	after := has[a.to] && !has[a.from]
	if after && !before {
		a.left--
	}
	return after && !before
}

// measureMove moves a policy space with all namespaces below it between two others.
func (b *bench) measureMove(ctx context.Context) error {
	spaces := v1alpha1.GroupVersion.WithResource("policyspaces")
	space, err := b.dynamic.Resource(spaces).Get(ctx, moved, metav1.GetOptions{})
	if err != nil {
		return err
	}
	a := &access{from: north, to: south, has: map[string]map[string]bool{}}
	if parent, _, _ := unstructured.NestedString(space.Object, "spec", "parent"); parent == south {
		a.from, a.to = south, north
	}
	resource := measure.ResourceOf(viewers("", ""))
	selector := fmt.Sprintf("%s in (%s,%s)", v1alpha1.TemplateNameLabel, north, south)
	result, err := b.carryOut(ctx, change{
		name: "move", resource: resource, selector: selector,
		make: func(ctx context.Context) error {
			list, err := b.metadata.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return err
			}
			for _, object := range list.Items {
				a.has[object.Namespace] = map[string]bool{object.Labels[v1alpha1.TemplateNameLabel]: true}
			}
			a.left = len(a.has)
			b.progress.part("move of a policy space", a.left)
			patch := fmt.Appendf(nil, `{"spec": {"parent": %q}}`, a.to)
			_, err = b.dynamic.Resource(spaces).Patch(ctx, moved, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		handle: func(event watch.Event) bool {
			if a.handle(event) {
				b.progress.done.Add(1)
			}
			return a.left == 0
		},
	})
	if err != nil {
		return err
	}
	count := len(a.has)
	below := 1 + b.content.divisions() + b.content.teams() // policy spaces, whose status has their path
	b.addChange("move of all namespaces", result, b.bare.move*time.Duration(count), 3*count+below)
	b.add(measurement{Name: "move of all namespaces: gaps in access", Goal: atMost(0)}, float64(a.gaps))
	return nil
}
