package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

var start = time.Unix(1_000_000, 0)

func wave(tier string, pause int32) v1alpha1.Wave {
	return v1alpha1.Wave{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}, PauseSeconds: pause,
	}
}

// cluster simulates the namespaces of a template, which are populated when a revision reaches them.
type cluster struct {
	t          *testing.T
	template   *v1alpha1.NamespaceTemplate
	specs      map[string]*v1alpha1.NamespaceTemplateSpec
	revisions  []v1alpha1.TemplateRevision
	namespaces []*corev1.Namespace
	// has is the name of the revision that each namespace is populated with, and fails says where a revision fails.
	has   map[string]string
	fails func(ns *corev1.Namespace, revision string) bool
	now   time.Time
	// created is the number of namespaces that were created.
	created int
	// failedBefore are those that failed before the newest revision; nil after a restart.
	failedBefore FailedBefore
}

func newCluster(t *testing.T, settings *v1alpha1.Rollout, tiers ...string) *cluster {
	t.Helper()
	c := &cluster{
		t: t, has: map[string]string{}, specs: map[string]*v1alpha1.NamespaceTemplateSpec{}, now: start,
		fails: func(*corev1.Namespace, string) bool { return false },
		template: &v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: "t", CreationTimestamp: metav1.NewTime(start)},
			Spec:       v1alpha1.NamespaceTemplateSpec{Rollout: settings},
		},
	}
	for _, tier := range tiers {
		c.create(tier, start.Add(-time.Hour))
	}
	return c
}

func (c *cluster) create(tier string, at time.Time) *corev1.Namespace {
	name := fmt.Sprintf("n%03d", c.created)
	c.created++
	c.namespaces = append(c.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{"tier": tier}, CreationTimestamp: metav1.NewTime(at),
	}})
	return c.namespaces[len(c.namespaces)-1]
}

// edit begins the rollout of a revision.
func (c *cluster) edit(name string, same ...string) {
	c.template.Generation++
	var waves []v1alpha1.Wave
	if c.template.Spec.Rollout != nil {
		waves = c.template.Spec.Rollout.Waves
	}
	c.specs[name] = &v1alpha1.NamespaceTemplateSpec{}
	c.revisions = Begin(c.revisions, v1alpha1.TemplateRevision{
		Name: name, Revision: c.template.Generation, Generation: c.template.Generation, Waves: waves,
	}, same, c.now)
	require.LessOrEqual(c.t, len(c.revisions), maxLayers)
}

// restart begins the rollout of the newest revision again.
func (c *cluster) restart() {
	newest := c.revisions[0]
	c.revisions = Begin(c.revisions, v1alpha1.TemplateRevision{
		Name: newest.Name, Revision: newest.Revision, Generation: newest.Generation, Waves: c.template.Spec.Rollout.Waves,
	}, []string{newest.Name}, c.now)
	require.LessOrEqual(c.t, len(c.revisions), maxLayers)
}

func (c *cluster) layers() Layers { return New(c.template, c.revisions, c.specs) }

func (c *cluster) members() []Member {
	layers := c.layers()
	newest := &layers[0]
	members := make([]Member, 0, len(c.namespaces))
	failedBefore := FailedBefore{}
	maps.Copy(failedBefore, c.failedBefore)
	for _, ns := range c.namespaces {
		member := Member{
			Wave: newest.WaveOf(ns), Position: newest.PositionOf(ns.UID), Reached: newest.Reached(ns),
			Pending: c.has[ns.Name] != newest.Name,
			Failed:  c.has[ns.Name] != "" && c.fails(ns, c.has[ns.Name]),
		}
		c.failedBefore.Next(failedBefore, ns, &member)
		members = append(members, member)
	}
	if c.failedBefore == nil {
		failedBefore.Confirm(c.revisions[0].FailedBefore)
	}
	c.failedBefore = failedBefore
	return members
}

// advance takes one step.
func (c *cluster) advance() time.Duration {
	next, wait := Advance(c.revisions[0], c.template.Spec.Rollout, c.members(), c.now)
	c.revisions[0] = next
	if next.State == v1alpha1.RolloutComplete {
		c.revisions = c.revisions[:1]
	}
	return wait
}

// populate populates every namespace with the revision that it has. It returns how many changed.
func (c *cluster) populate() (changed int) {
	layers := c.layers()
	for _, ns := range c.namespaces {
		name := ""
		if layer := layers.For(ns); layer != nil {
			name = layer.Name
		}
		if c.has[ns.Name] != name {
			c.has[ns.Name] = name
			changed++
		}
	}
	return changed
}

// run advances until nothing changes. It returns how many namespaces changed in each step.
func (c *cluster) run() (steps []int) {
	for {
		before := c.revisions[0].State
		c.advance()
		if changed := c.populate(); changed > 0 {
			steps = append(steps, changed)
		} else if before == c.revisions[0].State {
			return steps
		}
	}
}

func (c *cluster) count(revision string) int {
	n := 0
	for _, has := range c.has {
		if has == revision {
			n++
		}
	}
	return n
}

func tiers(n int) []string { return slices.Repeat([]string{"x"}, n) }

func TestARolloutGrowsAsLongAsNothingFails(t *testing.T) {
	for _, test := range []struct {
		namespaces int
		want       []int
	}{
		{0, nil}, {1, []int{1}}, {2, []int{1, 1}}, {3, []int{1, 2}}, {100, []int{2, 6, 24, 68}},
		{1000, []int{10, 30, 120, 480, 360}},
	} {
		c := newCluster(t, nil, tiers(test.namespaces)...)
		c.edit("t-1")
		require.Equal(t, test.want, c.run())
		require.Equal(t, v1alpha1.RolloutComplete, c.revisions[0].State)
	}
}

func TestABadRevisionReachesFewNamespaces(t *testing.T) {
	c := newCluster(t, nil, tiers(200)...)
	c.edit("t-1")
	c.run()
	c.fails = func(ns *corev1.Namespace, revision string) bool { return revision == "t-2" && ns.Name < "n030" }
	c.edit("t-2")
	c.run()
	require.Equal(t, v1alpha1.RolloutStopped, c.revisions[0].State)
	require.Less(t, c.count("t-2"), 70)
	require.Equal(t, 200, c.count("t-1")+c.count("t-2"))

	c.edit("t-3", "t-1")
	require.Equal(t, []int{200}, c.run(), "taking it back needs no waves")
	require.Equal(t, 200, c.count("t-3"))
}

func TestAStoppedRolloutGoesOnWhenTheFailuresAreMended(t *testing.T) {
	c := newCluster(t, nil, tiers(20)...)
	c.edit("t-1")
	c.fails = func(*corev1.Namespace, string) bool { return true }
	require.Equal(t, []int{1}, c.run())
	require.NotNil(t, c.revisions[0].StopTime)
	c.fails = func(*corev1.Namespace, string) bool { return false }
	c.advance()
	require.Nil(t, c.revisions[0].StopTime, "namespaces that are created now get the revision")
	c.run()
	require.Equal(t, 20, c.count("t-1"))
}

func TestNamespacesThatFailedBeforeDoNotStopARollout(t *testing.T) {
	c := newCluster(t, &v1alpha1.Rollout{MaxFailures: new(intstr.FromString("10%"))}, tiers(20)...)
	c.edit("t-1")
	c.run()
	c.fails = func(ns *corev1.Namespace, _ string) bool { return ns.Name == "n003" || ns.Name == "n007" }
	c.edit("t-2")
	c.run()
	require.Equal(t, 20, c.count("t-2"))
	c.fails = func(ns *corev1.Namespace, revision string) bool {
		return ns.Name <= "n003" || revision == "t-3" && ns.Name == "n007"
	}
	c.edit("t-3")
	c.run()
	require.Equal(t, 20, c.count("t-3"), "one more than before, and two may")
}

// A revision that mends namespaces must not break as many others.
func TestMendedNamespacesDoNotMakeUpForBrokenOnes(t *testing.T) {
	c := newCluster(t, nil, tiers(400)...)
	c.edit("t-1")
	c.run()
	c.fails = func(ns *corev1.Namespace, revision string) bool {
		fails := ns.Name < "n200" // as with the earlier revision
		if revision == "t-2" {
			fails = ns.Name >= "n200" && (ns.Name[3]-'0')%3 == 0
		}
		return fails
	}
	c.edit("t-2")
	c.run()
	require.Equal(t, v1alpha1.RolloutStopped, c.revisions[0].State)
	broken := 0
	for _, ns := range c.namespaces {
		if c.has[ns.Name] == "t-2" && c.fails(ns, "t-2") {
			broken++
		}
	}
	require.Less(t, broken, 30, "those of one batch")
}

// A process that starts in a rollout knows how many namespaces failed before, but not which.
func TestNamespacesThatFailedBeforeDoNotStopARolloutAfterARestart(t *testing.T) {
	c := newCluster(t, nil, tiers(20)...)
	c.edit("t-1")
	c.run()
	c.fails = func(ns *corev1.Namespace, _ string) bool { return ns.Name < "n005" }
	c.edit("t-2")
	for range 100 {
		c.failedBefore = nil
		c.advance()
		c.populate()
	}
	require.Equal(t, 20, c.count("t-2"))
}

// A namespace that failed before may be outside of the template when its batch is taken, and come back. Its owner does
// not stop the rollout by that, also after a restart of the process.
func TestNamespacesThatFailedBeforeAndComeBackDoNotStopARollout(t *testing.T) {
	c := newCluster(t, &v1alpha1.Rollout{MaxUnavailable: new(intstr.FromInt(4))}, tiers(20)...)
	c.edit("t-1")
	c.run()
	c.edit("t-2")
	layers := c.layers()
	slices.SortFunc(c.namespaces, func(a, b *corev1.Namespace) int {
		return cmp.Compare(layers[0].PositionOf(a.UID), layers[0].PositionOf(b.UID))
	})
	counted, away := c.namespaces[0], c.namespaces[1]
	c.fails = func(ns *corev1.Namespace, _ string) bool { return ns == counted || ns == away }
	c.members() // both fail before
	c.namespaces = slices.Delete(c.namespaces, 1, 2)
	c.advance()
	require.EqualValues(t, 1, c.revisions[0].FailedBefore)
	c.populate()
	for _, isRestarted := range []bool{false, true} {
		if isRestarted {
			c.failedBefore = nil
		} else {
			c.namespaces = append(c.namespaces, away)
			c.populate()
		}
		c.advance()
		require.Equal(t, v1alpha1.RolloutProgressing, c.revisions[0].State)
		require.EqualValues(t, 2, c.revisions[0].FailedBefore)
	}
	c.run()
	require.Equal(t, 20, c.count("t-2"))
}

// A process that starts when more namespaces fail than failed before does not know which are new failures. It does know
// those that fail later, before the revision reaches them.
func TestGuessesAreLimited(t *testing.T) {
	t.Parallel()
	guess := Member{Reached: true, Failed: true, FailedBefore: true, IsGuess: true}
	known := Member{Reached: true, Failed: true, FailedBefore: true}
	unreached := Member{Position: 1}
	for name, c := range map[string]struct {
		members []Member
		counted int32
		want    v1alpha1.RolloutState
	}{
		"as many as were counted":           {[]Member{guess, unreached}, 1, v1alpha1.RolloutProgressing},
		"more than were counted":            {[]Member{guess, guess, unreached}, 1, v1alpha1.RolloutStopped},
		"one that is known":                 {[]Member{known, unreached}, 0, v1alpha1.RolloutProgressing},
		"known ones make up for no guesses": {[]Member{known, guess, guess, unreached}, 1, v1alpha1.RolloutStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			revision := v1alpha1.TemplateRevision{FailedBefore: c.counted, State: v1alpha1.RolloutProgressing}
			next, _ := Advance(revision, nil, c.members, start)
			require.Equal(t, c.want, next.State)
		})
	}
	for counted, want := range map[int32]bool{0: true, 1: true, 2: false, 3: false} {
		after := FailedBefore{"1": {Name: "a", IsGuess: true}, "2": {Name: "b", IsGuess: true}, "3": {Name: "c"}}
		after.Confirm(counted)
		require.Equal(t, want, after["1"].IsGuess, counted)
		require.Equal(t, Failing{Name: "c"}, after["3"])
	}
}

// A correction is not stopped by namespaces that go on failing until it reaches them.
func TestFailuresOfAnEarlierRevisionDoNotStopARollout(t *testing.T) {
	c := newCluster(t, nil, tiers(20)...)
	c.edit("t-1")
	c.run()
	c.edit("t-2")
	c.advance()
	c.fails = func(_ *corev1.Namespace, revision string) bool { return revision != "t-2" }
	c.populate()
	c.run()
	require.Equal(t, 20, c.count("t-2"))
}

// A namespace that is created after a rollout stopped does not have the revision, whatever its position.
func TestNamespacesThatAreCreatedAfterARolloutStoppedDoNotHaveTheRevision(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)}}
	layers := New(template, []v1alpha1.TemplateRevision{
		{Name: "t-2", StartTime: at(10), StopTime: new(at(20)), State: v1alpha1.RolloutStopped, Reach: everyPosition},
		{Name: "t-1", StartTime: at(1), State: v1alpha1.RolloutComplete},
	}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": {}, "t-2": {}})
	for second, want := range map[int64]string{5: "t-2", 10: "t-2", 11: "t-2", 19: "t-2", 20: "t-1", 30: "t-1"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: at(second)}}
		require.Equal(t, want, layers.For(ns).Name, "created at %d", second)
	}
}

func TestWavesFollowEachOther(t *testing.T) {
	settings := &v1alpha1.Rollout{
		Waves: []v1alpha1.Wave{wave("canary", 60), wave("none", 60), wave("test", 0)}, MaxUnavailable: new(intstr.FromInt(2)),
	}
	c := newCluster(t, settings, "canary", "canary", "canary", "test", "prod", "prod", "prod")
	c.edit("t-1")
	require.Equal(t, []int{2, 1}, c.run())
	require.Equal(t, v1alpha1.RolloutWaiting, c.revisions[0].State)
	c.now = c.now.Add(20 * time.Second)
	require.Equal(t, 40*time.Second, c.advance())
	c.now = c.now.Add(40 * time.Second)
	require.Equal(t, []int{1, 2, 1}, c.run(), "a wave without namespaces takes no time")
	require.Equal(t, v1alpha1.RolloutComplete, c.revisions[0].State)
}

func TestAPausedRolloutStandsStill(t *testing.T) {
	c := newCluster(t, nil, tiers(100)...)
	c.edit("t-1")
	c.run()
	c.edit("t-2")
	c.advance()
	c.populate()
	c.template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	require.Empty(t, c.run())
	require.Equal(t, v1alpha1.RolloutPaused, c.revisions[0].State)
	require.Equal(t, 2, c.count("t-2"))
	c.now = c.now.Add(time.Minute)
	c.create("x", c.now)
	c.populate()
	require.Equal(t, 3, c.count("t-2"), "a new namespace has the newest revision")
	c.template.Spec.Rollout = nil
	c.run()
	require.Equal(t, 101, c.count("t-2"))
}

func TestNewNamespaces(t *testing.T) {
	c := newCluster(t, nil, tiers(50)...)
	c.edit("t-1")
	before := c.create("x", start)
	require.Equal(t, "t-1", c.layers().For(before).Name, "a namespace of the template's first second does not open without it")
	require.Nil(t, c.layers().For(c.namespaces[0]), "an older namespace waits for the rollout")
	c.run()

	c.now = c.now.Add(time.Hour)
	c.fails = func(_ *corev1.Namespace, revision string) bool { return revision == "t-2" }
	c.edit("t-2")
	c.now = c.now.Add(2 * time.Second)
	early := c.create("x", c.now)
	require.Equal(t, "t-2", c.layers().For(early).Name)
	c.run()
	require.Equal(t, v1alpha1.RolloutStopped, c.revisions[0].State)
	c.now = c.now.Add(10 * time.Second)
	late := c.create("x", c.now)
	require.Equal(t, "t-1", c.layers().For(late).Name, "the newest complete one")
	require.Equal(t, "t-2", c.layers().For(early).Name, "a namespace keeps what it has")
}

func TestAnEditDuringARolloutKeepsTheOthersAsTheyAre(t *testing.T) {
	c := newCluster(t, nil, tiers(100)...)
	c.edit("t-1")
	c.run()
	c.edit("t-2")
	c.advance()
	c.populate()
	c.advance()
	c.populate()
	require.Equal(t, 8, c.count("t-2"))
	c.edit("t-3")
	c.advance()
	require.LessOrEqual(t, c.populate(), 2, "only the first namespaces of the newest revision change")
	require.Equal(t, 2, c.count("t-3"))
	require.GreaterOrEqual(t, c.count("t-2"), 6)
	c.run()
	require.Equal(t, 100, c.count("t-3"))
	require.Len(t, c.revisions, 1)
}

func TestManyEditsDuringARolloutAreBounded(t *testing.T) {
	c := newCluster(t, &v1alpha1.Rollout{MaxUnavailable: new(intstr.FromInt(1))}, tiers(100)...)
	for i := range 30 {
		c.edit(fmt.Sprint("t-", i+1))
		c.advance()
		c.populate()
	}
	require.Len(t, c.revisions, maxLayers)
	c.run()
	require.Equal(t, 100, c.count("t-30"))
}

// A rollout that is paused half way stays there, however often it is restarted, and however often the template is edited.
func TestAPausedRolloutIsNotUndoneByManyChanges(t *testing.T) {
	for name, change := range map[string]func(c *cluster, i int){
		"restarts": func(c *cluster, _ int) { c.restart() },
		"edits":    func(c *cluster, i int) { c.edit(fmt.Sprint("t-3", i)) },
		"restarts with other waves": func(c *cluster, i int) {
			c.template.Spec.Rollout.Waves = []v1alpha1.Wave{wave("gold", int32(i%2))}
			c.restart()
		},
		"restarts after stops": func(c *cluster, i int) {
			if i%10 == 0 { // what is created now has the revision before, as long as there are few stops
				c.revisions[0].StopTime = new(metav1.NewTime(c.now.Truncate(time.Second)))
				c.now = c.now.Add(5 * time.Second)
				c.create("x", c.now)
				c.now = c.now.Add(5 * time.Second)
			}
			c.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &v1alpha1.Rollout{MaxUnavailable: new(intstr.FromInt(40))}
			c := newCluster(t, settings, tiers(100)...)
			c.edit("t-1")
			c.run()
			c.edit("t-2")
			c.advance()
			c.populate()
			require.Equal(t, 40, c.count("t-2"))
			settings.Paused = true
			c.advance()
			for i := range 30 {
				c.now = c.now.Add(2 * time.Second)
				change(c, i)
				c.now = c.now.Add(2 * time.Second)
				c.create("x", c.now) // it has the newest revision from now on
				c.populate()
				before := 60
				if name == "restarts after stops" {
					before += i/10 + 1
				}
				require.Equal(t, before, c.count("t-1"))
			}
		})
	}
}

// Whatever happens during a rollout, no namespace returns to an older revision, unless its labels change, and in the end
// every namespace has the newest one.
func TestNoNamespaceReturnsToAnOlderRevision(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := newCluster(t, &v1alpha1.Rollout{
			Waves: []v1alpha1.Wave{wave("a", 0), wave("b", 5)}, MaxUnavailable: new(intstr.FromInt(1 + random.IntN(9))),
		})
		for range random.IntN(40) {
			c.create([]string{"a", "b", "c"}[random.IntN(3)], start.Add(-time.Hour))
		}
		number := 0
		edit := func() { number++; c.edit(fmt.Sprintf("t-%03d", number)) }
		edit()
		edits := random.IntN(5)
		for range 60 {
			switch random.IntN(7) {
			case 6:
				c.restart()
			case 0:
				if edits > 0 {
					edits--
					edit()
				}
			case 1:
				c.create([]string{"a", "b", "c"}[random.IntN(3)], c.now)
			case 2:
				c.template.Spec.Rollout.Paused = !c.template.Spec.Rollout.Paused
			case 3:
				if len(c.namespaces) > 0 {
					i := random.IntN(len(c.namespaces))
					delete(c.has, c.namespaces[i].Name)
					c.namespaces = slices.Delete(slices.Clone(c.namespaces), i, i+1)
				}
			default:
				c.advance()
			}
			c.now = c.now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
			had := maps.Clone(c.has)
			c.populate()
			for name, revision := range had {
				if now, exists := c.has[name]; exists {
					require.GreaterOrEqual(t, now, revision, "seed %d: namespace %s", seed, name)
				}
			}
		}
		c.template.Spec.Rollout.Paused = false
		for range 100 { // after a restart, steps change nothing until they come to where it was before
			c.run()
			c.now = c.now.Add(6 * time.Second)
		}
		require.Len(t, c.revisions, 1, "seed %d", seed)
		require.Equal(t, len(c.namespaces), c.count(fmt.Sprintf("t-%03d", number)), "seed %d", seed)
	}
}
