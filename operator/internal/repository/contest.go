package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
)

// declaration is an object as a tree declares it.
type declaration struct {
	inventory.ID
	hash string
}

func declarationOf(object *unstructured.Unstructured) declaration {
	return declaration{render.IDOf(object), inventory.HashOf(object)}
}

// contested is an object that does not stay as it is declared.
type contested struct {
	inventory.ID
	why string
}

func (c contested) String() string { return c.ID.String() + ": " + c.why }

// stored is an object as the API server stored it when it was applied.
type stored struct {
	declared, object *unstructured.Unstructured
}

// postpone removes the applies from a plan that are not due yet, because other clients change the objects again and
// again. Nothing else waits for them: the objects were applied before.
func (f *followed) postpone(o *outcome, now time.Time) {
	o.differed = map[declaration]bool{}
	for _, change := range o.Applies {
		o.differed[declarationOf(change.Declared)] = true
	}
	o.Applies = slices.DeleteFunc(o.Applies, func(change inventory.Apply) bool {
		longest := backoff.LastPause
		if inventory.PhaseOf(render.IDOf(change.Declared).GroupKind) == inventory.Namespaces {
			longest = backoff.FirstPause // its labels may protect it from its users, who may begin a fight
		}
		wait := f.fights.Wait(struct{}{}, declarationOf(change.Declared), longest, now)
		if wait > 0 {
			o.due = min(cmp.Or(o.due, wait), wait)
		}
		return wait > 0
	})
}

// rivals returns the names of the clients that change objects of a plan again and again, as far as they are known. It
// reads only objects that are fought over from the API server, whose applies are rare.
func (f *followed) rivals(ctx context.Context, o *outcome, to writer, now time.Time) map[declaration]string {
	fought := f.fights.In(struct{}{}, now)
	names := map[declaration]string{}
	for _, change := range o.Applies {
		key := declarationOf(change.Declared)
		if _, isFought := fought[key]; !isFought || change.Live == nil {
			continue
		}
		if live, err := to.get(ctx, change.Live); err == nil {
			names[key] = inforce.ManagerOf(live, inforce.Difference(change.Declared, live, nil), fieldManager)
		}
	}
	return names
}

// settle notes what was stored, and adds the objects of a tree to an outcome that do not stay as they are declared.
func (f *followed) settle(o *outcome, tree *vetted, rivals map[declaration]string, now time.Time) {
	over := func(key declaration) { // admission undid the earlier applies, and not another client
		delete(f.altered, key)
		f.fights.Over(struct{}{}, key)
	}
	for _, one := range o.stored {
		key := declarationOf(one.declared)
		field := inforce.Difference(one.declared, one.object, nil)
		_, wasAltered := f.altered[key]
		if field == nil && wasAltered {
			over(key)
			continue
		}
		f.fights.Corrected(struct{}{}, key, rivals[key], now)
		if field == nil {
			continue
		}
		f.altered[key] = field
		if !wasAltered {
			// The next pass applies it again: a template may have set a label of a new namespace.
			o.remaining++
		}
	}
	for key := range f.altered {
		if !o.differed[key] {
			over(key)
		}
	}
	if o.remaining > 0 {
		return
	}
	for key, field := range f.altered {
		o.contested = append(o.contested, contested{key.ID, fmt.Sprintf("the API server stored another value of %s than "+
			"declared: exempt the object from the webhook or policy that mutates it, or declare that value", field)})
	}
	for key, fight := range f.fights.In(struct{}{}, now) {
		if _, isAltered := f.altered[key]; !isAltered && tree.declares(key) {
			o.contested = append(o.contested, contested{key.ID, fmt.Sprintf("%s changes it again and again: stop that "+
				"client, or remove the object from the tree", cmp.Or(fight.By, "another client"))})
		}
	}
	slices.SortFunc(o.contested, func(a, b contested) int { return strings.Compare(a.String(), b.String()) })
}
