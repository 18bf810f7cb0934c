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
	accepted := match.NewIndex()
	r := NewAcceptance(&storedTemplates{names: []string{"a", "b"}}, accepted, match.NewIndex())
	current := func(states ...string) bool {
		var namespaces []*corev1.Namespace
		for _, state := range states {
			namespaces = append(namespaces, selectedBy(state))
		}
		is, err := r.Current(t.Context(), "", namespaces...)
		require.NoError(t, err)
		return is
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
}

// A template that is deleted before it was accepted is never accepted. Nothing waits for it any more.
func TestDeletedTemplatesDelayNoMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}}
		r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
		current := func() bool {
			is, err := r.Current(t.Context(), "9", selectedBy("a"))
			require.NoError(t, err)
			return is
		}
		require.False(t, current())
		require.False(t, current())
		require.Equal(t, 1, api.lists, "many namespaces that wait cause one list")
		api.names = nil
		time.Sleep(requeueSoon)
		require.True(t, current())
		time.Sleep(time.Hour)
		require.True(t, current())
		require.Equal(t, 2, api.lists, "nothing is listed while all are accepted")
	})
}

// The namespaces of a policy space that moves need a list at the same time. One lists for all, and all fail with it.
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
				r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
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
						is, err := r.Current(t.Context(), asOf, selectedBy("a"))
						if !errors.Is(err, failure) || is {
							t.Errorf("%v, %v", is, err)
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
	r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
	for name, want := range map[string]bool{"0": false, "500": false, "501": true} {
		current, err := r.Current(t.Context(), "9", selectedBy(name))
		require.NoError(t, err)
		require.Equal(t, want, current, name)
	}
	require.Equal(t, 2, api.lists)
}

// A list of many templates takes long. Objects that appear one after the other must not keep an API server busy.
func TestListsOfTemplatesAreFollowedByAPause(t *testing.T) {
	t.Parallel()
	for takes, every := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 210 * time.Millisecond, 3 * time.Second: 4 * time.Second,
	} {
		for _, failure := range []error{nil, errors.New("no answer")} {
			synctest.Test(t, func(t *testing.T) {
				var begun []time.Duration
				start := time.Now()
				api := &storedTemplates{during: func() error {
					begun = append(begun, time.Since(start))
					time.Sleep(takes)
					return failure
				}}
				r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
				for range 3 {
					_, err := r.Current(t.Context(), "")
					require.ErrorIs(t, err, failure)
				}
				time.Sleep(every)
				_, err := r.Current(t.Context(), "")
				require.ErrorIs(t, err, failure)
				last := 2*every + takes + every
				require.Equal(t, []time.Duration{0, every, 2 * every, last}, begun, "none waits after a longer pause")
			})
		}
	}
}

func TestNamespacesThatComeInThePauseShareTheNextList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}, during: func() error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}}
		r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
		current := func(asOf string) {
			if is, err := r.Current(t.Context(), asOf, selectedBy("a")); err != nil || is {
				t.Errorf("%v, %v", is, err)
			}
		}
		current("")
		var done sync.WaitGroup
		for i := range 16 {
			done.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				current("")
			})
		}
		done.Wait()
		require.Equal(t, 2, api.lists)
		start := time.Now()
		current("9")
		require.Zero(t, time.Since(start), "the latest list is as new")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for range 2 {
			done.Go(func() {
				if _, err := r.Current(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		done.Wait()
		require.Equal(t, 50*time.Millisecond, time.Since(start), "a wait ends with its context")
		require.Equal(t, 2, api.lists)
	})
}

// While some templates are not accepted, a list that takes longer than requeueSoon is not repeated for each namespace.
func TestNamespacesThatMoveDoNotWaitInThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}, during: func() error {
			time.Sleep(2 * requeueSoon)
			return nil
		}}
		r := NewAcceptance(api, match.NewIndex(), match.NewIndex())
		start := time.Now()
		for range 100 {
			is, err := r.Current(t.Context(), "9", selectedBy("b"))
			require.NoError(t, err)
			require.True(t, is)
		}
		require.Equal(t, 1, api.lists)
		require.Equal(t, 2*requeueSoon, time.Since(start))
	})
}
