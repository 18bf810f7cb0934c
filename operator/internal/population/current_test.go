package population

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// storedTemplates are the templates of an API server, whose resourceVersion is 10.
type storedTemplates struct {
	client.Reader

	names []string
	lists int
	// during is called by each list before it reads, if it is not nil.
	during func() error
}

// List returns a page. The continue token is the number of templates before it.
func (s *storedTemplates) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	s.lists++
	if s.during != nil {
		if err := s.during(); err != nil {
			return err
		}
	}
	list.SetResourceVersion("10")
	page := (&client.ListOptions{}).ApplyOptions(options)
	before, _ := strconv.Atoi(page.Continue) // it is empty at first
	names := s.names[before:]
	if page.Limit > 0 && int(page.Limit) < len(names) {
		names = names[:page.Limit]
		list.SetContinue(strconv.Itoa(before + len(names)))
	}
	items := list.(*metav1.PartialObjectMetadataList)
	for _, name := range names {
		items.Items = append(items.Items, metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 2},
		})
	}
	return nil
}

// Get returns a template that selects the namespaces with its name as the label "of".
func (s *storedTemplates) Get(
	_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	template := object.(*v1alpha1.NamespaceTemplate)
	template.Name, template.UID, template.Generation = key.Name, "u", 2
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"of": key.Name}}
	return nil
}

// selectedBy returns a namespace that a template of a name selects.
func selectedBy(template string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"of": template}}}
}

// A namespace that moves waits for the templates that select it before or after, and for no other.
func TestOnlyTemplatesThatSelectANamespaceDelayItsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // so that a list takes no time, and no pause follows it
		accepted := match.NewIndex()
		r := &Acceptance{
			Live: &storedTemplates{names: []string{"a", "b"}}, Index: accepted, Stored: match.NewIndex(),
		}
		current := func(states ...string) bool {
			var namespaces []*corev1.Namespace
			for _, state := range states {
				namespaces = append(namespaces, selectedBy(state))
			}
			wait, err := r.Current(t.Context(), "", namespaces...)
			require.NoError(t, err)
			return wait == 0
		}
		require.True(t, current("other", "another"))
		require.False(t, current("a", "another"))
		require.False(t, current("another", "b"))
		// The cache has a later version, which selects nothing.
		r.Stored.Set(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Generation: 3},
			Spec: v1alpha1.NamespaceTemplateSpec{Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"none": "none"},
			}}}})
		require.True(t, current("a"))
		require.False(t, current("b"))
		accepted.Set(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u", Generation: 2}})
		require.True(t, current("b"))
	})
}

// A template that is deleted before it was accepted is never accepted. Nothing waits for it any more.
func TestDeletedTemplatesDelayNoMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}}
		r := &Acceptance{Live: api, Index: match.NewIndex(), Stored: match.NewIndex()}
		wait := func() time.Duration {
			wait, err := r.Current(t.Context(), "9", selectedBy("a"))
			require.NoError(t, err)
			return wait
		}
		require.Equal(t, requeueSoon, wait())
		require.Equal(t, requeueSoon, wait())
		require.Equal(t, 1, api.lists, "many namespaces that wait cause one list")
		api.names = nil
		time.Sleep(requeueSoon)
		require.Zero(t, wait())
		time.Sleep(time.Hour)
		require.Zero(t, wait())
		require.Equal(t, 2, api.lists, "nothing is listed while all are accepted")
	})
}

// The namespaces of a policy space that moves need a list at the same time. One lists for all, and all fail with it,
// except for those that need a later list.
func TestNamespacesThatMoveTogetherShareAList(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"which succeeds": nil, "which fails": errors.New("no answer")} {
		for _, asOf := range []string{"9", ""} {
			t.Run(name+" as of "+asOf, func(t *testing.T) {
				t.Parallel()
				const moved = 16
				var called sync.WaitGroup
				called.Add(moved)
				api := &storedTemplates{names: []string{"a"}}
				r := &Acceptance{Live: api, Index: match.NewIndex(), Stored: match.NewIndex()}
				api.during = func() error {
					if api.lists == 1 {
						called.Wait() // so that the others need a list that begins later, unless they have a version
					}
					return failure
				}
				var done sync.WaitGroup
				for range moved {
					done.Go(func() {
						called.Done()
						wait, err := r.Current(t.Context(), asOf, selectedBy("a"))
						if wait == 0 && (err == nil || !errors.Is(err, failure)) {
							t.Errorf("%v, %v", wait, err)
						}
					})
				}
				done.Wait()
				require.Less(t, api.lists, moved)
			})
		}
	}
}

func TestManyTemplatesAreListedInPages(t *testing.T) {
	t.Parallel()
	api := &storedTemplates{}
	for i := range 501 {
		api.names = append(api.names, fmt.Sprint(i))
	}
	r := &Acceptance{Live: api, Index: match.NewIndex(), Stored: match.NewIndex()}
	for name, want := range map[string]time.Duration{"0": requeueSoon, "500": requeueSoon, "501": 0} {
		wait, err := r.Current(t.Context(), "9", selectedBy(name))
		require.NoError(t, err)
		require.Equal(t, want, wait, name)
	}
	require.Equal(t, 2, api.lists)
}

// A list of many templates takes long. Namespaces that appear one after the other must not keep an API server busy, and
// what waits for the next list must not keep a worker busy. Deletions do not wait.
func TestListsOfTemplatesAreFollowedByAPause(t *testing.T) {
	t.Parallel()
	for takes, pause := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 40 * time.Millisecond, 3 * time.Second: time.Second,
	} {
		for _, failure := range []error{nil, errors.New("no answer")} {
			synctest.Test(t, func(t *testing.T) {
				api := &storedTemplates{names: []string{"a"}, during: func() error {
					time.Sleep(takes)
					return failure
				}}
				r := &Acceptance{Live: api, Index: match.NewIndex(), Stored: match.NewIndex()}
				for lists := range 3 {
					_, err := r.Current(t.Context(), "11")
					require.ErrorIs(t, err, failure)
					ended := time.Now()
					for range 100 {
						wait, err := r.Current(t.Context(), "11")
						require.NoError(t, err)
						require.Equal(t, pause, wait)
					}
					require.Zero(t, time.Since(ended))
					require.Equal(t, lists+1, api.lists)
					if failure == nil {
						wait, err := r.Current(t.Context(), "9", selectedBy("b"))
						require.NoError(t, err)
						require.Zero(t, wait, "the latest list is as new")
					}
					time.Sleep(pause)
				}
				for range 3 {
					began := time.Now()
					_, err := r.Current(t.Context(), "")
					require.ErrorIs(t, err, failure)
					require.Equal(t, takes, time.Since(began))
				}
			})
		}
	}
}

// While some templates are not accepted, a list that takes longer than requeueSoon is not repeated for each namespace.
func TestNamespacesThatMoveDoNotWaitInThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}, during: func() error {
			time.Sleep(2 * requeueSoon)
			return nil
		}}
		r := &Acceptance{Live: api, Index: match.NewIndex(), Stored: match.NewIndex()}
		start := time.Now()
		for range 100 {
			wait, err := r.Current(t.Context(), "9", selectedBy("b"))
			require.NoError(t, err)
			require.Zero(t, wait)
		}
		require.Equal(t, 1, api.lists)
		require.Equal(t, 2*requeueSoon, time.Since(start))
	})
}
