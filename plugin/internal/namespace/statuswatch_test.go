package namespace

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// filled is an informer that does not run. Tests fill its store.
type filled struct {
	cache.SharedIndexInformer
	isUnsynced bool
}

func (f *filled) HasSynced() bool { return !f.isUnsynced }

func newFilled() *filled {
	return &filled{SharedIndexInformer: cache.NewSharedIndexInformer(nil, &unstructured.Unstructured{}, 0, nil)}
}

// asStored returns an object as informers store it: those of nstpl are unstructured.
func asStored(t testing.TB, object runtime.Object) runtime.Object {
	t.Helper()
	kind := "NamespaceTemplate"
	switch object.(type) {
	case *corev1.Namespace:
		return object
	case *v1alpha1.TemplateExemption:
		kind = "TemplateExemption"
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	item := &unstructured.Unstructured{Object: content}
	item.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return item
}

// set replaces the objects in the store.
func (f *filled) set(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	var items []any
	for _, object := range objects {
		items = append(items, asStored(t, object))
	}
	require.NoError(t, f.GetStore().Replace(items, ""))
}

func exemptionOf(namespace, template string, expires *metav1.Time) *v1alpha1.TemplateExemption {
	return &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: template, Expires: expires},
	}
}

// watched is a watch of all namespaces, with the stores that it reads.
type watched struct {
	*statusWatch
	namespaces, templates, exemptions *filled
	shown                             *board
	client                            *fake.Clientset
	errOut                            fmt.Stringer
}

// newWatched returns a watch that was begun with what a board shows.
func newWatched(shown *board) watched {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	w := watched{
		namespaces: newFilled(), templates: newFilled(), exemptions: newFilled(), shown: shown,
		client: fake.NewClientset(), errOut: errOut,
	}
	w.statusWatch = &statusWatch{
		status: &status{Session: cli.NewSession(streams)}, index: match.NewIndex(),
		cluster:    &cluster.Cluster{Apps: w.client.AppsV1()},
		namespaces: []cache.SharedIndexInformer{w.namespaces}, templates: []cache.SharedIndexInformer{w.templates},
		exemptions: map[string]cache.SharedIndexInformer{metav1.NamespaceAll: w.exemptions},
	}
	return w
}

// changes updates the board and returns what changed, and when the next exemption expires.
func (w watched) changes(t testing.TB) ([]string, *metav1.Time) {
	t.Helper()
	next, err := w.update(t.Context(), w.shown)
	require.NoError(t, err)
	return summaries(w.shown), next
}

func TestStatusWatchFollowsExemptions(t *testing.T) {
	w := newWatched(&board{index: match.NewIndex(), showsAll: true})
	w.namespaces.set(t, namespaceIn("a", "one"))
	w.templates.set(t, templateFor("x", "one", 1))
	year := func(year int) metav1.Time { return metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	past, soon, late := year(2000), year(2200), year(2300)
	for _, step := range []struct {
		name       string
		exemptions []runtime.Object
		changed    []string
		next       *metav1.Time
	}{
		{"none", nil, []string{"a NotReported x"}, nil},
		{"two", []runtime.Object{
			exemptionOf("a", "x", &late), exemptionOf("unknown", "x", &soon),
		}, []string{"a NoTemplate"}, &soon},
		{"one has expired", []runtime.Object{
			exemptionOf("a", "x", &past), exemptionOf("unknown", "x", &soon),
		}, []string{"a NotReported x"}, &soon},
		{"without an end", []runtime.Object{exemptionOf("a", "x", nil)}, []string{"a NoTemplate"}, nil},
		{"withdrawn", nil, []string{"a NotReported x"}, nil},
	} {
		w.exemptions.set(t, step.exemptions...)
		changed, next := w.changes(t)
		require.Equal(t, step.changed, changed, step.name)
		require.True(t, step.next.Equal(next), "%s: %v", step.name, next)
		changed, _ = w.changes(t)
		require.Empty(t, changed, step.name)
	}
}

func TestStatusWatchKeepsExemptionsThatCannotBeWatched(t *testing.T) {
	w := newWatched(&board{index: match.NewIndex(), showsAll: true})
	w.shown.namespaces = []*corev1.Namespace{namespaceIn("a", "one"), namespaceIn("b", "one")}
	cluster.SetExemptions(w.shown.index, []*v1alpha1.TemplateExemption{
		exemptionOf("a", "x", nil), exemptionOf("b", "x", nil),
	})
	w.namespaces.set(t, w.shown.namespaces[0], w.shown.namespaces[1])
	w.templates.set(t, templateFor("x", "one", 1))
	w.exemptions.isUnsynced = true
	w.statusWatch.exemptions = map[string]cache.SharedIndexInformer{"a": w.exemptions, "b": newFilled()}
	changed, _ := w.changes(t)
	require.Equal(t, []string{"a NoTemplate", "b NotReported x"}, changed)
	changed, _ = w.changes(t)
	require.Empty(t, changed)
}

func TestStatusWatchWaitsForTheFirstLists(t *testing.T) {
	w := newWatched(&board{index: match.NewIndex(), namespaces: []*corev1.Namespace{namespaceIn("a", "one")}})
	w.shown.showsAll = true
	require.Equal(t, []string{"a NoTemplate"}, summaries(w.shown))
	for _, informer := range []*filled{w.namespaces, w.templates} {
		informer.isUnsynced = true
		changed, _ := w.changes(t)
		require.Empty(t, changed)
		informer.isUnsynced = false
	}
	changed, _ := w.changes(t)
	require.Equal(t, []string{"a Deleted"}, changed)
}

func TestStatusWatchReadsRevisionsOnceForEachStateOfATemplate(t *testing.T) {
	w := newWatched(&board{index: match.NewIndex()})
	w.namespaces.set(t, namespaceIn("a", "one"))
	template := templateFor("x", "one", 2)
	template.ResourceVersion = "1"
	template.Status = v1alpha1.NamespaceTemplateStatus{ObservedGeneration: 2, Revisions: []v1alpha1.TemplateRevision{
		{Name: "x-2", Revision: 2, Generation: 2}, {Name: "x-1", Revision: 1, Generation: 1},
	}}
	requests := func() int {
		before := len(w.client.Actions())
		_, _ = w.changes(t)
		return len(w.client.Actions()) - before
	}
	w.templates.set(t, template)
	require.Positive(t, requests())
	require.Zero(t, requests())
	template.ResourceVersion = "2"
	w.templates.set(t, template)
	require.Positive(t, requests())
	require.Contains(t, w.errOut.String(), "a revision of template x cannot be read")
	require.Equal(t, 1, strings.Count(w.errOut.String(), "\n"))
}

// BenchmarkStatusWatch computes 10,000 statuses, as a watch does after changes.
func BenchmarkStatusWatch(b *testing.B) {
	w := newWatched(&board{index: match.NewIndex()})
	var namespaces, templates, exemptions []runtime.Object
	for i := range 20 {
		templates = append(templates, templateFor(fmt.Sprintf("x-%d", i), strconv.Itoa(i), 1))
	}
	for i := range 10_000 {
		ns := namespaceIn(fmt.Sprintf("team-%d", i), strconv.Itoa(i%20))
		ns.Status.Conditions = []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Reason: "Populated",
			Message: "quota/x: drifted: spec.hard.pods changed by editor", LastTransitionTime: metav1.Now(),
		}}
		namespaces = append(namespaces, ns)
		if i%100 == 0 {
			exemptions = append(exemptions, exemptionOf(ns.Name, "x-0", nil))
		}
	}
	w.namespaces.set(b, namespaces...)
	w.templates.set(b, templates...)
	w.exemptions.set(b, exemptions...)
	for b.Loop() {
		_, err := w.update(b.Context(), w.shown)
		require.NoError(b, err)
		w.shown.changes()
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
	time.Sleep(time.Second)
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
	*cluster.Cluster
	out, errOut lines
	stop        context.CancelFunc
	ended       chan error
}

// startFollow follows a cluster with objects, in which the user may not watch the objects of a resource.
func startFollow(t *testing.T, shown *board, unwatchable string, objects ...runtime.Object) following {
	t.Helper()
	client := fake.NewClientset()
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha1.NamespaceTemplates: "NamespaceTemplateList", v1alpha1.TemplateExemptions: "TemplateExemptionList",
		})
	for _, object := range objects {
		tracker := dynamic.Tracker()
		if _, isNamespace := object.(*corev1.Namespace); isNamespace {
			tracker = client.Tracker()
		}
		require.NoError(t, tracker.Add(asStored(t, object)))
	}
	watches := func(action clienttesting.Action) (bool, apiwatch.Interface, error) {
		resource := action.GetResource().GroupResource()
		if resource.Resource == unwatchable {
			return true, nil, apierrors.NewForbidden(resource, "", errors.New("no"))
		}
		// The fake clients send no list in a watch, so informers have to list first.
		watch, _ := action.(clienttesting.WatchActionImpl)
		return watch.ListOptions.SendInitialEvents != nil, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	}
	client.PrependWatchReactor("*", watches)
	dynamic.PrependWatchReactor("*", watches)
	f := following{out: make(lines, 100), errOut: make(lines, 100), ended: make(chan error, 1)}
	f.Cluster = &cluster.Cluster{Namespaces: client.CoreV1().Namespaces(), Apps: client.AppsV1(), Dynamic: dynamic}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	o := &status{Session: cli.NewSession(genericiooptions.IOStreams{Out: f.out, ErrOut: f.errOut})}
	go func() { f.ended <- o.follow(ctx, f.Cluster, shown) }()
	return f
}

// end interrupts follow, which returns no error then.
func (f following) end(t *testing.T) {
	t.Helper()
	f.stop()
	require.NoError(t, <-f.ended)
}

// A burst of changes is shown once, and an exemption ends without a change of any object.
func TestStatusFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := metav1.NewTime(time.Now().Add(time.Hour))
		f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, "", namespaceIn("a", "one"),
			templateFor("x", "one", 1), exemptionOf("a", "x", &end))
		defer f.end(t)
		require.Contains(t, f.out.printed(), "NoTemplate")
		time.Sleep(time.Until(end.Time))
		require.Contains(t, f.out.printed(), "NotReported")

		for _, tier := range []string{"two", "one", "two"} {
			_, err := f.Namespaces.Update(t.Context(), namespaceIn("a", tier), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Regexp(t, `^a .*NoTemplate.*\n$`, f.out.printed())
		require.NoError(t, f.Namespaces.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		require.Regexp(t, `^a .*Deleted.*\n$`, f.out.printed())
	})
}

// A watch has no event for an object that was deleted between the list and the watch.
func TestStatusShowsWhatWasDeletedBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := &board{index: match.NewIndex(), showsAll: true}
		shown.namespaces = []*corev1.Namespace{namespaceIn("a", "one")}
		require.Equal(t, []string{"a NoTemplate"}, summaries(shown))
		f := startFollow(t, shown, "")
		defer f.end(t)
		require.Contains(t, f.out.printed(), "Deleted")
	})
}

func TestStatusFollowsWithoutTheExemptionsThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t, &board{index: match.NewIndex(), showsAll: true}, v1alpha1.TemplateExemptions.Resource,
			namespaceIn("a", "one"), templateFor("x", "one", 1))
		defer f.end(t)
		require.Contains(t, f.out.printed(), "NotReported")
		require.Contains(t, f.errOut.printed(),
			"changes of exemptions are not shown: templateexemptions.policy.nstpl.dev is forbidden: no\n")
	})
}

func TestStatusEndsIfNamespacesOrTemplatesCannotBeWatched(t *testing.T) {
	for _, resource := range []string{"namespaces", v1alpha1.NamespaceTemplates.Resource} {
		synctest.Test(t, func(t *testing.T) {
			f := startFollow(t, &board{index: match.NewIndex()}, resource)
			require.True(t, apierrors.IsForbidden(<-f.ended), resource)
			f.stop()
		})
	}
}
