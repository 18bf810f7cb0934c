package freshness

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// object is a state of an object.
type object struct {
	uid     types.UID
	version string
}

func (o *object) GetUID() types.UID          { return o.uid }
func (o *object) GetResourceVersion() string { return o.version }

func TestTheLastWriteIsLatestUntilTheCacheHasIt(t *testing.T) {
	t.Parallel()
	before, after, later := &object{"1", "9"}, &object{"1", "10"}, &object{"1", "11"}
	var store Store[string, *object]
	require.Same(t, before, store.Latest("a", before), "nothing was written")
	store.Written("a", after)
	require.Same(t, after, store.Latest("a", before))
	require.Same(t, after, store.Latest("a", before), "each time")
	require.Same(t, before, store.Latest("b", before), "another object was written")
	require.Same(t, later, store.Latest("a", later))
	require.Same(t, before, store.Latest("a", before), "it is forgotten once the cache has had it")
}

func TestAWriteThatTheCacheGetsMeanwhileIsRead(t *testing.T) {
	t.Parallel()
	before, after, later := &object{"1", "9"}, &object{"1", "10"}, &object{"1", "11"}
	for name, test := range map[string]struct{ cached, want *object }{
		"the cache was read before it got the write": {before, after},
		"after that":                   {after, after},
		"after that of another client": {later, later},
	} {
		var store Store[string, *object]
		store.Written("a", after)
		read, err := store.Read("a", func() (*object, error) {
			store.Observed("a", "11")
			return test.cached, nil
		})
		require.NoError(t, err)
		require.Same(t, test.want, read, name)
	}
	var store Store[string, *object]
	store.Written("a", after)
	_, err := store.Read("a", func() (*object, error) { return nil, errors.New("it is gone") })
	require.EqualError(t, err, "it is gone")
}

func TestAWriteThatTheCacheGetsDuringAListIsRead(t *testing.T) {
	t.Parallel()
	a, b, c := &object{"a", "10"}, &object{"b", "11"}, &object{"c", "12"}
	keyOf := func(o *object) types.UID { return o.uid }
	var store Store[types.UID, *object]
	store.Written(a.uid, a)
	store.Written(b.uid, b)
	read, err := store.ReadAll(keyOf, func() ([]*object, error) {
		listed := []*object{{"a", "8"}, {"b", "9"}, c}
		store.Observed(a.uid, a.version)
		return listed, nil
	})
	require.NoError(t, err)
	require.Equal(t, []*object{a, b, c}, read)
	read, err = store.ReadAll(keyOf, func() ([]*object, error) { return []*object{a, {"b", "13"}}, nil })
	require.NoError(t, err)
	require.Equal(t, []*object{a, {"b", "13"}}, read)
	_, err = store.ReadAll(keyOf, func() ([]*object, error) { return nil, errors.New("it cannot be listed") })
	require.EqualError(t, err, "it cannot be listed")
}

func TestWritesThatTheCacheHasAreForgotten(t *testing.T) {
	t.Parallel()
	written := &object{"1", "10"}
	for name, test := range map[string]struct {
		event func(*Store[string, *object])
		kept  bool
	}{
		"the write":                      {func(s *Store[string, *object]) { s.Observed("a", "10") }, false},
		"a later state":                  {func(s *Store[string, *object]) { s.Observed("a", "11") }, false},
		"a late event":                   {func(s *Store[string, *object]) { s.Observed("a", "9") }, true},
		"another object":                 {func(s *Store[string, *object]) { s.Observed("b", "11") }, true},
		"the deletion":                   {func(s *Store[string, *object]) { s.Deleted("a", "1") }, false},
		"the deletion of a predecessor":  {func(s *Store[string, *object]) { s.Deleted("a", "0") }, true},
		"a list":                         {func(s *Store[string, *object]) { s.UpTo("12") }, false},
		"a bookmark before the write":    {func(s *Store[string, *object]) { s.UpTo("9") }, true},
		"an older list after a bookmark": {func(s *Store[string, *object]) { s.UpTo("12"); s.UpTo("5") }, false},
		"an older answer":                {func(s *Store[string, *object]) { s.Written("a", &object{"1", "9"}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store Store[string, *object]
			store.Written("a", written)
			test.event(&store)
			want := map[string]*object{}
			if test.kept {
				want["a"] = written
			}
			require.Equal(t, want, maps.Collect(store.Unobserved()))
		})
	}
}

func TestAnAnswerAfterTheCacheIsNotStored(t *testing.T) {
	t.Parallel()
	var store Store[string, *object]
	store.UpTo("10")
	store.Written("a", &object{"1", "10"})
	require.Empty(t, store.written)
	store.Written("a", &object{"1", "a hash"})
	require.Empty(t, store.written, "it cannot be known when the cache has it")
}

func TestObservedReturnsTheWriteThatWasNotShown(t *testing.T) {
	t.Parallel()
	written := &object{"1", "10"}
	var store Store[string, *object]
	store.Written("a", written)
	for _, version := range []string{"9", "12"} {
		pending, isPending := store.Observed("a", version)
		require.True(t, isPending)
		require.Same(t, written, pending)
	}
	_, isPending := store.Observed("a", "13")
	require.False(t, isPending)
}

// keys are the names of the objects of a cluster.
var keys = []string{"a", "b"}

// cluster is an API server with objects of one kind, and a cache of them that is late.
type cluster struct {
	version int
	stored  map[string]*object
	// events are the states that the cache has not taken in yet: a nil object was deleted.
	events []event
	// answers are the answers to writes of this process that have not arrived yet.
	answers map[string][]*object
	// answered is the newest write of which the answer has arrived, by key.
	answered map[string]*object
	cache    map[string]*object
	// listed are the states that an informer has yet to take in from a list.
	listed []event
	store  Store[string, *object]
	// isComplete is true if the cache knows up to which resourceVersion it is complete.
	isComplete bool
}

type event struct {
	key     string
	version string
	object  *object
}

// write stores a new state of an object, which is created if it does not exist.
func (c *cluster) write(key string) *object {
	c.version++
	version := strconv.Itoa(c.version)
	uid := types.UID(version)
	if old := c.stored[key]; old != nil {
		uid = old.uid
	}
	c.stored[key] = &object{uid, version}
	c.events = append(c.events, event{key, version, c.stored[key]})
	return c.stored[key]
}

func (c *cluster) delete(key string) {
	if c.stored[key] == nil {
		return
	}
	c.version++
	delete(c.stored, key)
	c.events = append(c.events, event{key, strconv.Itoa(c.version), nil})
}

// receive has the cache accept a state of an object.
func (c *cluster) receive(key, version string, state *object) {
	old := c.cache[key]
	if old != nil && (state == nil || old.uid != state.uid) {
		c.store.Deleted(key, old.uid)
	}
	if state == nil {
		delete(c.cache, key)
		return
	}
	c.cache[key] = state
	c.store.Observed(key, version)
}

// deliver has the cache accept the next event, or the next object of a list.
func (c *cluster) deliver() {
	if len(c.listed) > 0 {
		next := c.listed[0]
		c.listed = c.listed[1:]
		c.receive(next.key, next.version, next.object)
		return
	}
	if len(c.events) == 0 {
		return
	}
	next := c.events[0]
	c.events = c.events[1:]
	c.receive(next.key, next.version, next.object)
	if c.isComplete {
		c.store.UpTo(next.version)
	}
}

// expire ends the watch. What it has not delivered is never delivered: a list has the present states. A cache that
// knows how complete it is takes in a list as one step.
func (c *cluster) expire(isReversed bool) {
	if len(c.listed) > 0 {
		return
	}
	c.events = nil
	for _, key := range keys {
		listed := event{key: key, object: c.stored[key]}
		if listed.object != nil {
			listed.version = listed.object.version
		}
		c.listed = append(c.listed, listed)
	}
	if isReversed {
		slices.Reverse(c.listed)
	}
	if c.isComplete {
		for len(c.listed) > 0 {
			c.deliver()
		}
		c.store.UpTo(strconv.Itoa(c.version))
	}
}

// answer has an answer to a write arrive, not necessarily in the order of the writes.
func (c *cluster) answer(key string, at int) {
	if len(c.answers[key]) == 0 {
		return
	}
	at %= len(c.answers[key])
	answer := c.answers[key][at]
	c.answers[key] = slices.Delete(c.answers[key], at, at+1)
	c.store.Written(key, answer)
	if last := c.answered[key]; last == nil || Newer(answer.version, last.version) {
		c.answered[key] = answer
	}
}

// check checks what the store says about an object: never less than the cache or an answer, and no object that the
// process did not write.
func (c *cluster) check(t *testing.T, key string) {
	t.Helper()
	cached := c.cache[key]
	if cached == nil {
		return
	}
	latest := c.store.Latest(key, cached)
	require.False(t, Newer(cached.version, latest.version), "the cache has a newer state")
	if answered := c.answered[key]; answered != nil {
		require.False(t, Newer(answered.version, latest.version), "a write was answered that is newer")
	}
	require.True(t, latest == cached || latest == c.answered[key])
}

// Writes of this process and of others, answers, events, deletions and expired watches come in any order.
func FuzzTheLatestStateIsNeverOlderThanWhatIsKnown(f *testing.F) {
	f.Add([]byte{0, 3, 4, 0, 1, 4, 3, 4}, true)
	f.Add([]byte{0, 2, 3, 4, 4, 4}, true)
	f.Add([]byte{0, 1, 5, 3, 4, 6, 4, 14, 3, 13, 12}, false)
	f.Fuzz(func(t *testing.T, steps []byte, isComplete bool) {
		c := &cluster{
			stored: map[string]*object{}, answers: map[string][]*object{}, answered: map[string]*object{},
			cache: map[string]*object{}, isComplete: isComplete,
		}
		for _, step := range steps {
			key := keys[int(step/8)%len(keys)]
			switch step % 8 {
			case 0:
				c.answers[key] = append(c.answers[key], c.write(key))
			case 1:
				c.write(key)
			case 2:
				c.delete(key)
			case 3:
				c.answer(key, int(step/16))
			case 4, 5:
				c.deliver()
			case 6:
				c.expire(step >= 128)
			case 7:
				if c.isComplete && len(c.events) == 0 {
					c.store.UpTo(strconv.Itoa(c.version))
				}
			}
			for _, key := range keys {
				c.check(t, key)
			}
		}
		c.settle(t)
	})
}

// settle has everything arrive. The store then says what is stored, and keeps nothing if the cache is complete.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	for len(c.events)+len(c.listed) > 0 {
		c.deliver()
	}
	for _, key := range keys {
		for len(c.answers[key]) > 0 {
			c.answer(key, 0)
		}
		require.Equal(t, c.stored[key], c.cache[key])
		if stored := c.stored[key]; stored != nil {
			require.Same(t, stored, c.store.Latest(key, stored))
		}
	}
	if c.isComplete {
		require.Empty(t, maps.Collect(c.store.Unobserved()))
	}
}
