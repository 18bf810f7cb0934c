package sources

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// copied is a cluster with ConfigMaps that one template copies into many namespaces.
type copied struct {
	t       *testing.T
	store   *Store
	objects dynamic.NamespaceableResourceInterface
	changes metadatafake.MetadataClient
	// namespaces is how many the template selects, and maxSize is what it allows.
	namespaces, maxSize int
	// version is the last resourceVersion.
	version int
	// mu protects what follows.
	mu sync.Mutex
	// written has the bytes of all copies that were written, and now what each source was when they were.
	written atomic.Int64
	now     map[render.SourceRef]populate.Source
	// forbid has the API server deny a source.
	forbid func(name string)
	// delayed is how often the delays were to be reported, and counted how often copies were counted.
	delayed, counted atomic.Int64
}

func newCopied(t *testing.T, namespaces int) *copied {
	t.Helper()
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	objects, changes := dynamicfake.NewSimpleDynamicClient(scheme), metadatafake.NewSimpleMetadataClient(scheme)
	var forbidden atomic.Pointer[string]
	objects.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		denied := forbidden.Load()
		return denied != nil && *denied == name, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), name, errors.New("no role"))
	})
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	c := &copied{
		t: t, objects: objects.Resource(resource), namespaces: namespaces, maxSize: v1alpha1.DefaultMaxSourceSize,
		changes: changes.Resource(resource).Namespace("vault").(metadatafake.MetadataClient),
		now:     map[render.SourceRef]populate.Source{},
		forbid:  func(name string) { forbidden.Store(&name) },
	}
	c.store = New(t.Context(), Options{
		Objects: objects, Changes: changes, Mapper: mapper, Changed: func([]string) { c.copy() },
		Largest: func(render.SourceRef, []string) int { return c.maxSize },
		Copies: func(_ render.SourceRef, size int, _ []string) (int, int) {
			c.counted.Add(1)
			if size > c.maxSize {
				return c.namespaces, 0
			}
			return c.namespaces, c.namespaces
		},
		Delayed: func([]string) { c.delayed.Add(1) },
	})
	return c
}

func sourceRef(name string) render.SourceRef {
	return render.SourceRef{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "vault", Name: name,
	}
}

// follow begins to follow a source that exists.
func (c *copied) follow(name string, size int) {
	c.t.Helper()
	c.put(name, size, "first")
	c.mu.Lock()
	c.now[sourceRef(name)] = populate.Source{}
	c.mu.Unlock()
	c.store.Add("copies", []render.SourceRef{sourceRef(name)})
	c.wait(time.Minute)
}

// copy counts what copies of the sources are written, with the template's deletionPolicy Delete.
func (c *copied) copy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.now {
		before, now := c.now[ref], c.store.Get(ref)
		if now.Content != nil && now.Digest != before.Digest {
			c.written.Add(int64(c.namespaces * now.Size))
		}
		if now.Content != nil || now.Lost {
			c.now[ref] = now
		}
	}
}

// put creates or changes a source of a size.
func (c *copied) put(name string, size int, content string, changes ...func(*unstructured.Unstructured)) {
	c.t.Helper()
	c.version++
	metadata := metav1.ObjectMeta{Namespace: "vault", Name: name, ResourceVersion: fmt.Sprint(c.version)}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": content + strings.Repeat("x", size)},
		"metadata": map[string]any{
			"namespace": metadata.Namespace, "name": metadata.Name, "resourceVersion": metadata.ResourceVersion,
		},
	}}
	for _, change := range changes {
		change(object)
	}
	of := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metadata,
	}
	objects := c.objects.Namespace("vault")
	if _, err := objects.Create(c.t.Context(), object, metav1.CreateOptions{}); err == nil {
		_, err = c.changes.CreateFake(of, metav1.CreateOptions{})
		require.NoError(c.t, err)
	} else {
		require.True(c.t, apierrors.IsAlreadyExists(err), "%v", err)
		_, err = objects.Update(c.t.Context(), object, metav1.UpdateOptions{})
		require.NoError(c.t, err)
		_, err = c.changes.UpdateFake(of, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
}

func (c *copied) delete(name string) {
	c.t.Helper()
	require.NoError(c.t, c.objects.Namespace("vault").Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(c.t, c.changes.Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

// content returns what copies of a source have.
func (c *copied) content(name string) string {
	c.t.Helper()
	source := c.store.Get(sourceRef(name))
	require.NotNil(c.t, source.Content, "%v", source.Failure)
	value, _, _ := unstructured.NestedString(source.Content.Object, "data", "key")
	return value
}

// wait lets time pass.
func (c *copied) wait(duration time.Duration) {
	time.Sleep(duration)
	synctest.Wait()
}

// passes is how many bytes may be written in a time, besides the first change of each source.
func passes(duration time.Duration) int { return int(duration.Seconds()) << 20 }

func TestWhatAllCopiesWriteIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 60 << 10
		c := newCopied(t, 500)
		c.follow("a", size)
		c.written.Store(0)
		for i := range 75 {
			c.put("a", size, fmt.Sprint(i))
			c.wait(4 * time.Second)
		}
		require.LessOrEqual(t, int(c.written.Load()), passes(5*time.Minute)+500*(size+100))
		c.wait(5 * time.Minute)
		require.Contains(t, c.content("a"), "74x", "the last one")
	})
}

func TestTheSameContentCreatedAgainIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 60 << 10
		c := newCopied(t, 500)
		c.follow("a", size)
		c.written.Store(0)
		for range 30 {
			c.delete("a")
			c.wait(missTime + 2*time.Second)
			require.True(t, c.store.Get(sourceRef("a")).Lost, "a removal does not wait")
			c.put("a", size, "first")
			c.wait(3 * time.Second)
		}
		require.LessOrEqual(t, int(c.written.Load()), passes(5*time.Minute)+500*(size+100))
	})
}

func TestCopiesOfASmallSourceAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 5000)
		c.follow("a", 10)
		var changes atomic.Int64
		c.store.Changed = func([]string) { changes.Add(1) }
		for i := range 600 {
			c.put("a", 10, fmt.Sprint(i))
			c.wait(100 * time.Millisecond)
		}
		require.LessOrEqual(t, changes.Load(), int64(8))
	})
}

// Copies are counted among all namespaces, so changes that wait do not have them counted.
func TestChangesThatWaitCountNoCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 5000)
		c.follow("a", 60<<10)
		c.change()
		c.counted.Store(0)
		for i := range 10 {
			c.put("a", (54+i)<<10, fmt.Sprint(i)) // also larger than 60 KiB, which might be too large
			c.wait(2 * time.Second)
		}
		require.Zero(t, c.counted.Load())
		c.wait(longestDelay)
		require.EqualValues(t, 1, c.counted.Load())
		require.Contains(t, c.content("a"), "9x", "the last one")
	})
}

// Those who change sources all the time share what may be written, and do not delay the first change of another.
func TestSourcesShareWhatMayBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, busy = 60 << 10, 10
		c := newCopied(t, 100)
		for i := range busy {
			c.follow(fmt.Sprint(i), size)
		}
		c.follow("calm", size)
		c.written.Store(0)
		for i := range 100 {
			for name := range busy {
				c.put(fmt.Sprint(name), size, fmt.Sprint(i))
			}
			c.wait(6 * time.Second)
		}
		require.LessOrEqual(t, int(c.written.Load()), passes(10*time.Minute)+2*busy*100*(size+100))
		require.Greater(t, int(c.written.Load()), passes(8*time.Minute))
		c.put("calm", size, "second")
		c.wait(time.Second)
		require.Contains(t, c.content("calm"), "secondx")
	})
}

// change changes the source a of 60 KiB twice, so that the second change waits for a minute with 1000 namespaces.
func (c *copied) change() {
	c.t.Helper()
	for _, content := range []string{"second", "third"} {
		c.put("a", 60<<10, content)
		c.wait(time.Second)
	}
	require.Contains(c.t, c.content("a"), "secondx")
}

func TestAChangeThatWaitsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		c.follow("a", 60<<10)
		began := time.Now()
		c.change()
		resume := c.store.sources[sourceRef("a")].resume
		require.WithinRange(t, resume, began.Add(59*time.Second), began.Add(62*time.Second))
		require.EqualValues(t, 1, c.delayed.Load())
		require.Equal(t, "changes of the source configmap/a in namespace vault wait until "+
			resume.UTC().Format(time.RFC3339)+", so that its copies do not fill etcd", c.store.Delay("copies"))
		require.Empty(t, c.store.Delay("another"))
		c.wait(time.Until(resume))
		require.Contains(t, c.content("a"), "thirdx")
		require.EqualValues(t, 2, c.delayed.Load())
		require.Empty(t, c.store.Delay("copies"))
	})
}

// The message of a condition has room for one sentence, however many sources wait.
func TestChangesOfManySourcesThatWaitAreOneSentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		for _, name := range []string{"b", "a", "c"} {
			c.follow(name, 60<<10)
		}
		for i := range 2 {
			for _, name := range []string{"b", "c", "a"} {
				c.put(name, 60<<10, fmt.Sprint(i))
				c.wait(time.Second)
			}
		}
		first := c.store.sources[sourceRef("b")].resume
		want := "wait, so that their copies do not fill etcd: the first is configmap/%s in namespace vault, until %s"
		require.Equal(t, "changes of 3 sources "+fmt.Sprintf(want, "b", first.UTC().Format(time.RFC3339)),
			c.store.Delay("copies"))
		c.wait(time.Until(first))
		second := c.store.sources[sourceRef("c")].resume
		require.Equal(t, "changes of 2 sources "+fmt.Sprintf(want, "c", second.UTC().Format(time.RFC3339)),
			c.store.Delay("copies"))
	})
}

// A removal does not wait, whatever else waits. It changes the conditions of namespaces once.
func TestRemovalsDoNotWait(t *testing.T) {
	for name, test := range map[string]struct {
		remove func(*copied)
		after  time.Duration
		want   string
	}{
		"deleted":   {func(c *copied) { c.delete("a") }, missTime + time.Second, "does not exist"},
		"forbidden": {func(c *copied) { c.forbid("a") }, recheckTime + denyTime + time.Second, "may not get"},
		"a copy": {func(c *copied) {
			c.put("a", 60<<10, "other", func(object *unstructured.Unstructured) {
				object.SetAnnotations(map[string]string{v1alpha1.CopyOfAnnotation: "other/a"})
			})
		}, time.Second, "is itself a copy"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCopied(t, 5000)
				c.follow("a", 60<<10)
				c.change()
				var changes atomic.Int64
				c.store.Changed = func([]string) { changes.Add(1) }
				test.remove(c)
				c.wait(test.after)
				taken := c.store.Get(sourceRef("a"))
				require.True(t, taken.Content == nil)
				require.ErrorContains(t, taken.Failure, test.want)
				require.Empty(t, c.store.Delay("copies"))
				c.wait(longestDelay)
				require.EqualValues(t, 1, changes.Load())
			})
		})
	}
}

// kubectl replace --force deletes a source and creates it again, which takes no copies away. Changes wait as always.
func TestASourceThatIsReplacedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		c.follow("a", 60<<10)
		c.change()
		var lost atomic.Int64
		c.store.Changed = func([]string) {
			if c.store.Get(sourceRef("a")).Content == nil {
				lost.Add(1)
			}
		}
		for _, absent := range []time.Duration{time.Millisecond, missTime - 2*time.Second} {
			c.delete("a")
			c.wait(absent)
			c.put("a", 60<<10, "replaced")
			c.wait(2 * time.Second)
			require.Contains(t, c.content("a"), "secondx")
		}
		c.wait(longestDelay)
		require.Contains(t, c.content("a"), "replacedx")
		require.Zero(t, lost.Load())
	})
}

// What was read of a source is not copied any more once the API server answers otherwise, so that deleting it or
// revoking the right takes back a change that waits.
func TestAChangeThatWaitsIsNotCopiedFromASourceThatMayBeLost(t *testing.T) {
	for name, test := range map[string]struct {
		lose, restore func(*copied)
		before        time.Duration
	}{
		"deleted": {
			func(c *copied) { c.delete("a") }, func(c *copied) { c.put("a", 60<<10, "fourth") }, 3 * time.Second,
		},
		"forbidden": {func(c *copied) { c.forbid("a") }, func(c *copied) { c.forbid("") }, 20 * time.Second},
	} {
		for _, isRestored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, restored: %t", name, isRestored), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCopied(t, 1000)
					c.follow("a", 60<<10)
					c.change()
					c.wait(time.Until(c.store.sources[sourceRef("a")].resume.Add(-test.before)))
					test.lose(c)
					c.wait(test.before + time.Second)
					c.store.Judge() // also if the rules about protected attributes change
					require.Contains(t, c.content("a"), "secondx", "it is not known yet to be lost")
					if !isRestored {
						c.wait(denyTime)
						require.True(t, c.store.Get(sourceRef("a")).Lost)
						return
					}
					test.restore(c)
					c.wait(2 * time.Second)
					require.NotContains(t, c.content("a"), "secondx", "it had its time")
				})
			})
		}
	}
}

// No user needs to create a source that was lost and exists again. Users who delete and create it again all the
// time have the conditions of its namespaces written once.
func TestALostSourceReportsWhenItIsCopiedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		lose, restore func(*copied)
		after         time.Duration
	}{
		"deleted": {
			func(c *copied) { c.delete("a") }, func(c *copied) { c.put("a", 60<<10, "again") }, missTime + time.Second,
		},
		"forbidden": {
			func(c *copied) { c.forbid("a") }, func(c *copied) { c.forbid("") }, recheckTime + denyTime + time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCopied(t, 5000)
				c.follow("a", 60<<10)
				c.change()
				test.lose(c)
				c.wait(test.after)
				resume := c.store.sources[sourceRef("a")].resume
				var changes atomic.Int64
				c.store.Changed = func([]string) { changes.Add(1) }
				for range 3 {
					test.restore(c)
					c.wait(2 * time.Second)
					waits := c.store.Get(sourceRef("a"))
					require.True(t, waits.Lost)
					require.EqualError(t, waits.Failure, "the source configmap/a in namespace vault was lost, and is copied again at "+
						resume.UTC().Format(time.RFC3339)+", if it can be copied then")
					test.lose(c)
					c.wait(test.after)
				}
				require.EqualValues(t, 1, changes.Load())
				test.restore(c)
				c.wait(time.Until(resume))
				require.NotNil(t, c.store.Get(sourceRef("a")).Content)
			})
		})
	}
}

// What is taken away is not written, so it delays the changes of no other source. What comes back does, also if it
// cannot be copied, since users could write conditions all the time by that.
func TestLossesShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		c.follow("a", 60<<10)
		for i := range 20 {
			c.follow(fmt.Sprint(i), 60<<10)
		}
		for i := range 20 {
			c.delete(fmt.Sprint(i))
		}
		c.wait(missTime + time.Second)
		require.True(t, c.store.Get(sourceRef("19")).Lost)
		c.put("a", 60<<10, "second")
		c.wait(time.Second)
		followed := c.store.sources[sourceRef("a")]
		require.InDelta(t, 61*time.Second, followed.resume.Sub(followed.changed), float64(time.Second))
		for i := range 20 {
			c.put(fmt.Sprint(i), 10, "", func(object *unstructured.Unstructured) {
				object.SetAnnotations(map[string]string{v1alpha1.CopyOfAnnotation: "other/a"})
			})
		}
		c.wait(time.Minute)
		c.put("a", 60<<10, "third")
		c.wait(2 * time.Second)
		require.Contains(t, c.content("a"), "thirdx")
		require.Equal(t, longestDelay, followed.resume.Sub(followed.changed))
	})
}

func TestASourceThatBecomesTooLargeIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		c.follow("a", 60<<10)
		c.change()
		c.put("a", 80<<10, "large")
		c.wait(time.Second)
		require.Greater(t, c.store.Get(sourceRef("a")).Size, c.maxSize)
	})
}

// A source that is removed all the time, which never waits, changes the conditions of its namespaces seldom.
func TestFailuresOfASourceAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 1000)
		c.follow("a", 60<<10)
		c.change()
		var changes atomic.Int64
		c.store.Changed = func([]string) { changes.Add(1) }
		for range 5 {
			c.delete("a")
			c.wait(missTime + 2*time.Second)
			c.put("a", 80<<10, "large")
			c.wait(2 * time.Second)
			require.NotEmpty(t, c.store.Delay("copies"), "it waits to come back")
		}
		require.EqualValues(t, 2, changes.Load(), "that it is lost, and until when it waits")
		require.LessOrEqual(t, c.delayed.Load(), int64(3))
		c.wait(longestDelay)
		require.EqualValues(t, 3, changes.Load())
	})
}

// The first answer about a source costs nothing, and neither does an API server that does not answer.
func TestAnOutageDelaysNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopied(t, 10000)
		c.follow("a", 60<<10)
		followed := c.store.sources[sourceRef("a")]
		for range 3 {
			c.store.set(followed, populate.SourceUnread(followed.ref, apierrors.NewInternalError(fmt.Errorf("etcd"))))
			require.Nil(t, c.store.Get(followed.ref).Content)
			c.wait(recheckTime)
			require.Contains(t, c.content("a"), "firstx")
		}
		c.put("a", 60<<10, "second")
		c.wait(time.Second)
		require.Contains(t, c.content("a"), "secondx")
		require.Equal(t, longestDelay, followed.resume.Sub(followed.changed), "no longer, although it is 630 MB")
	})
}
