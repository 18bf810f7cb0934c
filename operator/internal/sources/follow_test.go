package sources

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Only the answer that names the object takes a source away.
func TestIsMissing(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	notServed := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"the object":     {apierrors.NewNotFound(secrets, "pull"), true},
		"another object": {apierrors.NewNotFound(secrets, "other"), false},
		"the kind":       {notServed, false},
		"denied":         {apierrors.NewForbidden(secrets, "pull", errors.New("no role")), false},
		"no answer":      {errors.New("connection refused"), false},
		"no error":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, isMissing(test.err, "pull"))
		})
	}
}

// A source whose reads fail for longer than a moment is unknown, and not what it was long ago.
func TestASourceThatCannotBeReadForLongIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ref := render.SourceRef{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "a", Name: "pull"}
		var changed int
		store := New(t.Context(), Options{Changed: func([]string) { changed++ }})
		followed := &source{ref: ref, began: time.Now(), answered: make(chan struct{})}
		store.sources[ref] = followed
		f := &follower{Store: store, source: followed}
		secret := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "Yg=="}}}
		store.set(followed, populate.NewSource(ref, secret))
		notServed := errors.New("the server could not find the requested resource")
		f.fail(notServed)
		time.Sleep(unreadTime - time.Second)
		f.fail(notServed)
		require.Nil(t, store.Get(ref).Failure)
		time.Sleep(time.Second)
		f.fail(notServed)
		require.ErrorContains(t, store.Get(ref).Failure, "cannot be read: the server could not find the requested resource")
		require.False(t, store.Get(ref).Lost, "its copies stay")
		require.Equal(t, 2, changed)
	})
}

// An operator that starts while a source is replaced does not know that it had copies, so it must not delete them.
func TestASourceThatIsMissingAtFirstIsNotLostYet(t *testing.T) {
	for name, absent := range map[string]time.Duration{
		"for a moment": time.Second, "for seconds": missTime - time.Second, "for good": 0,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, refs := newCopied(t, 1000), []render.SourceRef{sourceRef("a")}
				var states []string
				c.store.Changed = func([]string) {
					if source := c.store.Get(refs[0]); source.Failure == nil {
						states = append(states, "known")
					} else {
						states = append(states, string(source.Failure.Reason))
						require.Equal(t, source.Lost, source.Failure.Reason == populate.ReasonSourceNotFound)
						require.ErrorContains(t, source.Failure, "does not exist")
					}
				}
				c.store.Add("copies", refs)
				if absent == 0 {
					c.wait(missTime - time.Second)
					require.True(t, c.store.Pending(refs), "templates wait for the answer")
					c.wait(2 * time.Second)
					require.False(t, c.store.Pending(refs))
					require.Equal(t, []string{"SourceNotFound"}, states)
					return
				}
				c.wait(absent)
				c.put("a", 60<<10, "first")
				c.wait(lossRetry)
				require.Contains(t, c.content("a"), "firstx")
				require.NotContains(t, states, "SourceNotFound")
				require.Equal(t, []string{"known"}, states)
			})
		})
	}
}
