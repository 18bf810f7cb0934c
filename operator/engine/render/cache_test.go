package render

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestCacheCompilesOnceForEachGenerationAndSetOfOverlays(t *testing.T) {
	template := withOverlays(t, templateOf(t, configMap),
		"[{name: production, labels: {tier: production}}, {name: audited, labels: {audited: 'yes'}}]")
	template.Generation = 1
	cache := NewCache()
	compile := func(overlays ...string) *Compiled {
		t.Helper()
		compiled, err := cache.Compile(template, overlays)
		require.NoError(t, err)
		return compiled
	}
	plain, production, audited, both := compile(), compile("production"), compile("audited"),
		compile("production", "audited")
	require.Same(t, plain, compile())
	require.Same(t, production, compile("production"))
	require.Same(t, both, compile("production", "audited"))
	for i, a := range []*Compiled{plain, production, audited, both} {
		for _, b := range []*Compiled{plain, production, audited, both}[i+1:] {
			require.NotSame(t, a, b)
		}
	}
	objects, _, err := both.Stamp(Values{Namespace: "team-a"})
	require.NoError(t, err)
	require.Subset(t, objects[0].GetLabels(), map[string]string{"tier": "production", "audited": "yes"})
}

func TestCacheCompilesAgainWhenATemplateChanges(t *testing.T) {
	cache := NewCache()
	compile := func(uid, color string, generation int64) *Compiled {
		t.Helper()
		template := templateOf(t,
			fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: %s}}", color))
		template.UID, template.Generation = types.UID(uid), generation
		compiled, err := cache.Compile(template, nil)
		require.NoError(t, err)
		objects, _, err := compiled.Stamp(Values{Namespace: "team-a"})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"color": color}, objects[0].Object["data"])
		return compiled
	}
	first := compile("a", "blue", 1)
	require.Same(t, first, compile("a", "blue", 1))
	require.NotSame(t, first, compile("a", "red", 2))

	again := compile("b", "green", 3)
	cache.Forget("policies")
	require.NotSame(t, again, compile("b", "green", 3))
	cache.Forget("unknown")
}

func TestCacheCompilesAgainWhenATemplateIsDeletedAndCreated(t *testing.T) {
	cache := NewCache()
	template := templateOf(t, configMap)
	template.UID, template.Generation = "old", 1
	old, err := cache.Compile(template, nil)
	require.NoError(t, err)
	template = template.DeepCopy()
	template.UID = "new"
	compiled, err := cache.Compile(template, nil)
	require.NoError(t, err)
	require.NotSame(t, old, compiled)
}

func TestCacheKeepsErrors(t *testing.T) {
	cache := NewCache()
	template := templateOf(t, "{kind: a}")
	_, first := cache.Compile(template, nil)
	require.Error(t, first)
	_, second := cache.Compile(template, nil)
	require.Same(t, first, second)
}

func TestCacheRejectsATemplateIfAnyOverlayIsInvalid(t *testing.T) {
	template := withOverlays(t, templateOf(t, configMap),
		"[{name: good, labels: {a: b}}, {name: bad, patches: [{patch: hello}]}, {name: worse, patches: [{patch: hi}]}]")
	_, err := NewCache().Compile(template, nil)
	require.ErrorContains(t, err, "overlay bad: ")
	require.ErrorContains(t, err, "overlay worse: ")
	require.NotContains(t, err.Error(), "overlay good")
	require.EqualError(t, withTemplateName(template, checkOverlays(notCanceled, template)), err.Error())
}

func TestCacheCompilesOnceForConcurrentCallers(t *testing.T) {
	cache := NewCache()
	const templates, callers = 8, 16
	var compiled [templates][callers]*Compiled
	var wait sync.WaitGroup
	for i := range templates {
		template := templateOf(t, configMap, "{apiVersion: example.dev/v1, kind: Unheard, metadata: {name: a}}",
			roleBinding)
		template.Name = fmt.Sprintf("policies-%d", i)
		for j := range callers {
			wait.Go(func() {
				got, err := cache.Compile(template, nil)
				if err != nil {
					return
				}
				if _, _, err := got.Stamp(Values{Namespace: "team-a", Creator: "alice"}); err == nil {
					compiled[i][j] = got
				}
			})
		}
	}
	wait.Wait()
	for i := range templates {
		require.NotNil(t, compiled[i][0])
		for j := range callers {
			require.Same(t, compiled[i][0], compiled[i][j], "one caller compiles, the others wait for it")
		}
	}
}

func TestCacheKeepsTheTemplatesThatWereUsedLast(t *testing.T) {
	cache := NewCache()
	compile := func(name string) *Compiled {
		template := templateOf(t, configMap)
		template.Name = name
		compiled, err := cache.Compile(template, nil)
		require.NoError(t, err)
		return compiled
	}
	common, rare := compile("common"), compile("rare")
	for i := range mostCompiled {
		compile(fmt.Sprintf("other-%d", i))
		require.Same(t, common, compile("common"))
	}
	require.NotSame(t, rare, compile("rare"))
}
