package namespace

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func exemptionOf(namespace, template string) *v1alpha1.TemplateExemption {
	return &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: template},
	}
}

// lines receives what is written.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// printed returns what was written since it was last called.
func (l lines) printed() (text string) {
	time.Sleep(2 * readEvery)
	synctest.Wait()
	for {
		select {
		case line := <-l:
			text += line
		default:
			return text
		}
	}
}

// following is a run of follow in a cluster.
type following struct {
	namespaces  typedcorev1.NamespaceInterface
	out, errOut lines
	stop        context.CancelFunc
	ended       chan error
	// index and unread are what reading templates and exemptions answers, and reads how often it was done.
	index  atomic.Pointer[match.Index]
	unread atomic.Pointer[error]
	reads  atomic.Int32
}

// answer sets what reading templates and exemptions answers from now on.
func (f *following) answer(exemptions []*v1alpha1.TemplateExemption, templates ...*v1alpha1.NamespaceTemplate) {
	index := match.NewIndex(templates...)
	cluster.SetExemptions(index, exemptions)
	f.index.Store(index)
}

// startFollow follows a cluster with namespaces, which the user may not watch if isForbidden is set.
func startFollow(t *testing.T, shown *board, isForbidden bool, namespaces ...runtime.Object) *following {
	t.Helper()
	client := fake.NewClientset(namespaces...)
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, apiwatch.Interface, error) {
		if isForbidden {
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no"))
		}
		// The fake client sends no list in a watch, so informers have to list first.
		watch, _ := action.(clienttesting.WatchActionImpl)
		return watch.ListOptions.SendInitialEvents != nil, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	})
	f := &following{out: make(lines, 100), errOut: make(lines, 100), ended: make(chan error, 1)}
	f.answer(nil)
	f.namespaces = client.CoreV1().Namespaces()
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	o := &status{Session: cli.NewSession(genericiooptions.IOStreams{Out: f.out, ErrOut: f.errOut})}
	read := func(context.Context, []*corev1.Namespace) (*match.Index, []error) {
		f.reads.Add(1)
		if err := f.unread.Load(); err != nil {
			return f.index.Load(), []error{*err}
		}
		return f.index.Load(), nil
	}
	go func() { f.ended <- o.follow(ctx, &cluster.Cluster{Namespaces: f.namespaces}, shown, read) }()
	return f
}

// end interrupts follow, which returns no error then.
func (f *following) end(t *testing.T) {
	t.Helper()
	f.stop()
	require.NoError(t, <-f.ended)
}

// A burst of changes is shown once, and templates and exemptions change without a change of a namespace.
func TestStatusFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, false, namespaceIn("a", "one"))
		defer f.end(t)
		require.Contains(t, f.out.printed(), "NoTemplate")
		template := templateFor("x", "one", 1)
		f.answer(nil, template)
		require.Regexp(t, `^a .*NotReported.*\n$`, f.out.printed())
		f.answer([]*v1alpha1.TemplateExemption{exemptionOf("a", "x")}, template)
		require.Regexp(t, `^a .*NoTemplate.*\n$`, f.out.printed())
		f.answer(nil, template)
		require.Regexp(t, `^a .*NotReported.*\n$`, f.out.printed())

		for _, tier := range []string{"two", "one", "two"} {
			_, err := f.namespaces.Update(t.Context(), namespaceIn("a", tier), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Regexp(t, `^a .*NoTemplate.*\n$`, f.out.printed())
		require.NoError(t, f.namespaces.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		require.Regexp(t, `^a .*Deleted.*\n$`, f.out.printed())
	})
}

// A watch has no event for an object that was deleted between the list and the watch.
func TestStatusShowsWhatWasDeletedBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := &board{index: match.NewIndex(), showsAll: true}
		shown.namespaces = []*corev1.Namespace{namespaceIn("a", "one")}
		require.Equal(t, []string{"a NoTemplate"}, summaries(shown))
		f := startFollow(t, shown, false)
		defer f.end(t)
		require.Contains(t, f.out.printed(), "Deleted")
	})
}

// Namespaces are followed while templates, their revisions or exemptions cannot be read, by those that were read last.
// Each outage is announced once.
func TestStatusKeepsWhatCannotBeRead(t *testing.T) {
	unavailable := errors.New("unavailable")
	for name, test := range map[string]struct {
		unread  error
		answers bool // with an index that lacks what is unread
	}{
		"templates":  {unread: unavailable},
		"exemptions": {unread: cluster.UnreadExemptionsError{Err: unavailable}, answers: true},
		"revisions":  {unread: cluster.UnreadRevisionsError{Template: "x", Err: unavailable}, answers: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, false, namespaceIn("a", "one"))
				defer f.end(t)
				exempt, template := []*v1alpha1.TemplateExemption{exemptionOf("b", "x")}, templateFor("x", "one", 1)
				for _, created := range []string{"b", "c"} {
					f.unread.Store(nil)
					f.answer(exempt, template)
					f.out.printed()
					f.errOut.printed()
					f.unread.Store(&test.unread)
					f.index.Store(nil)
					if test.answers {
						f.answer(nil, template)
					}
					_, err := f.namespaces.Create(t.Context(), namespaceIn(created, "one"), metav1.CreateOptions{})
					require.NoError(t, err)
					want := map[string]string{"b": "NoTemplate", "c": "NotReported"}[created]
					require.Regexp(t, "^"+created+" .*"+want+`.*\n$`, f.out.printed())
					notes := strings.Count(f.errOut.printed(), "those that were read last are shown: unavailable\n")
					require.Equal(t, 1, notes)
				}
			})
		})
	}
}

// What the user may not read at all, or does not exist any more, does not keep the rest from being followed.
func TestStatusFollowsWithoutWhatStaysUnread(t *testing.T) {
	revisions := schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	for note, unread := range map[string]error{
		"exemptions are unknown": cluster.UnreadExemptionsError{
			Err: apierrors.NewForbidden(v1alpha1.TemplateExemptions.GroupResource(), "", errors.New("no")),
		},
		"a revision of template x cannot be read": cluster.UnreadRevisionsError{
			Template: "x", Err: apierrors.NewNotFound(revisions, "x-1"),
		},
	} {
		t.Run(note, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, false, namespaceIn("a", "one"))
				defer f.end(t)
				f.unread.Store(&unread)
				f.answer(nil, templateFor("x", "one", 1))
				require.Contains(t, f.out.printed(), "NotReported")
				f.answer(nil)
				require.Contains(t, f.out.printed(), "NoTemplate")
				require.Equal(t, 1, strings.Count(f.errOut.printed(), note))
			})
		})
	}
}

// Changes of namespaces are shown soon, without reading templates and exemptions again.
func TestStatusReadsTemplatesAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, false, namespaceIn("a", "one"))
		defer f.end(t)
		f.answer(nil, templateFor("x", "one", 1))
		require.Contains(t, f.out.printed(), "NotReported")
		before := f.reads.Load()
		for _, tier := range []string{"two", "one", "two", "one", "two"} {
			_, err := f.namespaces.Update(t.Context(), namespaceIn("a", tier), metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Contains(t, <-f.out, map[string]string{"two": "NoTemplate", "one": "NotReported"}[tier])
		}
		require.LessOrEqual(t, f.reads.Load()-before, int32(2))
	})
}

// A user who may not list templates sees the conditions of namespaces.
func TestStatusFollowsWithoutTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t, &board{showsAll: true}, false, namespaceIn("a", "one"))
		defer f.end(t)
		f.answer(nil, templateFor("x", "one", 1))
		require.Regexp(t, `\na .*<unknown>.*\n$`, f.out.printed())
	})
}

func TestStatusEndsIfNamespacesCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t, &board{index: match.NewIndex()}, true)
		require.True(t, apierrors.IsForbidden(<-f.ended))
		f.stop()
	})
}
