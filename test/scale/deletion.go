package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/measure"
)

// measureDeletion deletes the last tenth of the namespaces at once, or as many before them if those are not populated.
func (b *bench) measureDeletion(ctx context.Context) error {
	var names []string
	for i := int(b.content) - 1; i >= 0 && len(names) < divideUp(int(b.content), 10); i-- {
		if b.namespaces[i] {
			names = append(names, namespaceName(i))
			delete(b.namespaces, i)
		}
	}
	if len(names) == 0 {
		return errors.New("no namespace is populated")
	}
	before, err := b.operator.AllMetrics(ctx)
	if err != nil {
		return err
	}
	var took time.Duration
	work, err := measure.During(ctx, b.client, func() (err error) {
		took, err = b.deleteNamespaces(ctx, names)
		return err
	})
	if err != nil {
		return err
	}
	after, err := b.operator.AllMetrics(ctx)
	if err != nil {
		return err
	}
	const prefix = "deletion of a tenth of the namespaces at once: "
	count := float64(len(names))
	b.compare(measurement{Name: prefix + "time for each", Unit: "ms"},
		measure.Milliseconds(took)/count, measure.Milliseconds(b.bare.deletion))
	b.add(measurement{Name: prefix + "operator's CPU time for each", Unit: "ms"},
		measure.Milliseconds(after.CPU()-before.CPU())/count)
	patches := 0.0 // Kubernetes' own controllers only delete and update
	for kind, made := range work.Requests {
		if strings.HasPrefix(kind, "APPLY ") || strings.HasPrefix(kind, "PATCH ") {
			patches += made
		}
	}
	b.add(measurement{Name: prefix + "operator's writes for each"}, patches/count)
	return nil
}
