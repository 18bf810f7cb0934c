package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/backoff"
)

// contests knows which objects do not stay as trees declare them, by the UID of the PolicyRepository. The zero value
// knows of none. It is safe for concurrent use.
type contests struct {
	mu sync.Mutex
	// fights counts how often each declaration is applied.
	fights *backoff.Fights[types.UID, declaration]
	// altered are the fields with which the API server stored objects other than declared.
	altered map[types.UID]map[declaration]inforce.Field
}

// declaration is an object as a tree declares it.
type declaration struct {
	inventory.ID
	hash string
}

func declarationOf(object *unstructured.Unstructured) declaration {
	return declaration{inventory.IDOf(object), inventory.HashOf(object)}
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

// of returns the fights and the altered objects of a PolicyRepository.
func (c *contests) of(
	repository types.UID,
) (*backoff.Fights[types.UID, declaration], map[declaration]inforce.Field) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fights == nil {
		c.fights = backoff.NewFights[types.UID, declaration]()
		c.altered = map[types.UID]map[declaration]inforce.Field{}
	}
	if c.altered[repository] == nil {
		c.altered[repository] = map[declaration]inforce.Field{}
	}
	return c.fights, c.altered[repository]
}

// keep forgets the objects of all other PolicyRepositories.
func (c *contests) keep(repositories []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.altered {
		if !slices.Contains(repositories, uid) {
			delete(c.altered, uid)
			c.fights.Forget(uid)
		}
	}
}

// postpone removes the applies from a plan that are not due yet, because other clients change the objects again and
// again. Nothing else waits for them: the objects were applied before.
func (c *contests) postpone(repository types.UID, o *outcome, now time.Time) {
	fights, _ := c.of(repository)
	o.differed = map[declaration]bool{}
	for _, change := range o.Applies {
		o.differed[declarationOf(change.Declared)] = true
	}
	o.Applies = slices.DeleteFunc(o.Applies, func(change inventory.Apply) bool {
		longest := backoff.LastPause
		if inventory.PhaseOf(inventory.IDOf(change.Declared).GroupKind) == inventory.Namespaces {
			longest = backoff.FirstPause // its labels may protect it from its users, who may begin a fight
		}
		wait := fights.Wait(repository, declarationOf(change.Declared), longest, now)
		if wait > 0 {
			o.due = min(cmp.Or(o.due, wait), wait)
		}
		return wait > 0
	})
}

// rivals returns the names of the clients that change objects of a plan again and again, as far as they are known. It
// reads only objects that are fought over from the API server, whose applies are rare.
func (c *contests) rivals(
	ctx context.Context, repository types.UID, o *outcome, to writer, now time.Time,
) map[declaration]string {
	fights, _ := c.of(repository)
	fought := fights.In(repository, now)
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
func (c *contests) settle(
	repository types.UID, o *outcome, tree *vetted, rivals map[declaration]string, now time.Time,
) {
	fights, altered := c.of(repository)
	over := func(key declaration) { // admission undid the earlier applies, and not another client
		delete(altered, key)
		fights.Over(repository, key)
	}
	for _, one := range o.stored {
		key := declarationOf(one.declared)
		field := inforce.Difference(one.declared, one.object, nil)
		_, wasAltered := altered[key]
		if field == nil && wasAltered {
			over(key)
			continue
		}
		fights.Corrected(repository, key, rivals[key], now)
		if field == nil {
			continue
		}
		altered[key] = field
		if !wasAltered {
			// The next pass applies it again: a template may have set a label of a new namespace.
			o.remaining++
		}
	}
	for key := range altered {
		if !o.differed[key] {
			over(key)
		}
	}
	if o.remaining > 0 {
		return
	}
	for key, field := range altered {
		o.contested = append(o.contested, contested{key.ID, fmt.Sprintf("the API server stored another value of %s than "+
			"declared: exempt the object from the webhook or policy that mutates it, or declare that value", field)})
	}
	for key, fight := range fights.In(repository, now) {
		if _, isAltered := altered[key]; !isAltered && tree.declares(key) {
			o.contested = append(o.contested, contested{key.ID, fmt.Sprintf("%s changes it again and again: stop that "+
				"client, or remove the object from the tree", cmp.Or(fight.By, "another client"))})
		}
	}
	slices.SortFunc(o.contested, func(a, b contested) int { return strings.Compare(a.String(), b.String()) })
}
