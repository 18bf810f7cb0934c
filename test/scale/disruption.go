package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/test/measure"
)

const (
	// namespacesPerLoss is how many namespaces there are for each that loses an object in a disruption.
	namespacesPerLoss = 50
	// disruptedNamespaces is how many namespaces are created in a disruption, and disruptedTemplate is their template.
	disruptedNamespaces = 20
	disruptedTemplate   = "disrupted"
)

// measureDisruptions runs two replicas with little memory. It kills the leader, and then restarts the API server, which
// answers all watches with 410, because it does not know their revisions. Replicas must then read everything again
// while they still hold what they had.
func (b *bench) measureDisruptions(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, b.startOperator(ctx, b.options.operator)) }()
	r, err := b.startReplicas(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	d := &disruption{creations: &creations{bench: b}, replicas: r}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.disrupt(ctx, "the leader is killed", r.killLeader); err != nil {
		return err
	}
	return d.disrupt(ctx, "the API server restarts", func() error {
		return b.cluster.Restart(ctx, "kube-apiserver")
	})
}

// disruption takes objects away and creates namespaces after something disrupts the operator.
type disruption struct {
	*creations
	replicas *replicas
	// lost are the namespaces whose first object of the baseline is deleted.
	lost []string
	// count is how many disruptions there were.
	count int
}

// prepare chooses the namespaces that lose an object, and creates the template of those that are created.
func (d *disruption) prepare(ctx context.Context) error {
	list, err := d.metadata.Resource(measure.ResourceOf(baselineObjects()[0])).
		List(ctx, metav1.ListOptions{LabelSelector: stageLabel})
	if err != nil {
		return err
	}
	for at := 0; at < len(list.Items); at += namespacesPerLoss {
		d.lost = append(d.lost, list.Items[at].Namespace)
	}
	labels := map[string]any{"matchLabels": map[string]any{creatorLabel: disruptedTemplate}}
	if err := d.apply(ctx, newTemplate(disruptedTemplate, nil, labels, profileObject())); err != nil {
		return err
	}
	// A namespace that is populated shows that the operator knows the template.
	return d.createOpen(ctx, disruptedTemplate, fmt.Sprintf("%d-first", d.content))
}

// disrupt makes something happen. It measures the time until the objects that are lost after it are back, and the
// namespaces that are created after it are populated.
func (d *disruption) disrupt(ctx context.Context, name string, happen func() error) error {
	d.progress.part(name, 0)
	if err := happen(); err != nil {
		return err
	}
	d.count++
	before := d.early.Load()
	var took time.Duration
	work, err := measure.During(ctx, d.client, func() error {
		start := time.Now()
		if err := d.loseObjects(ctx); err != nil {
			return err
		}
		d.progress.part("objects that are back, and namespaces that are populated", disruptedNamespaces+len(d.lost))
		err := d.parallel(ctx, disruptedNamespaces+len(d.lost), func(i int) error {
			if i < disruptedNamespaces {
				return d.createOpen(ctx, disruptedTemplate, fmt.Sprintf("%d-%d-%02d", d.content, d.count, i))
			}
			return d.awaitObject(ctx, d.lost[i-disruptedNamespaces])
		})
		took = time.Since(start)
		return err
	})
	if err != nil {
		return err
	}
	d.printRequests("time after "+name, work)
	peak, err := d.replicas.peakMemory()
	if err != nil {
		return err
	}
	d.add(measurement{Name: name + ": until everything is corrected", Unit: "s", Growth: linear}, took.Seconds())
	// A namespace that is created needs its object, and the write that opens it. This program deleted the lost objects.
	lost := float64(len(d.lost))
	d.compare(measurement{Name: name + ": writes, to changes", Growth: linear},
		operatorWrites(work.Requests)-lost, lost+2*disruptedNamespaces)
	d.add(measurement{Name: name + ": namespaces that open before they are populated", Goal: atMost(0)},
		float64(d.early.Load()-before))
	d.add(measurement{Name: name + ": peak memory of a replica", Unit: "MiB", Growth: linear,
		Goal: atMost(float64(d.options.memory))}, peak/mebibyte)
	return nil
}

// loseObjects deletes populated objects.
func (d *disruption) loseObjects(ctx context.Context) error {
	first := baselineObjects()[0]
	d.progress.part("deletion of objects", len(d.lost))
	return d.parallel(ctx, len(d.lost), func(i int) error {
		return d.dynamic.Resource(measure.ResourceOf(first)).Namespace(d.lost[i]).
			Delete(ctx, first.GetName(), metav1.DeleteOptions{})
	})
}

// awaitObject returns when a namespace has the first object of the baseline.
func (d *disruption) awaitObject(ctx context.Context, namespace string) error {
	first := baselineObjects()[0]
	of := d.metadata.Resource(measure.ResourceOf(first)).Namespace(namespace)
	for {
		_, err := of.Get(ctx, first.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := measure.Pause(ctx, pollInterval); err != nil {
			return fmt.Errorf("%s is not back in namespace %s: %w", first.GetName(), namespace, err)
		}
	}
}
