package render

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// configMaps returns a template with a number of ConfigMaps and some overlays.
func configMaps(t testing.TB, count int, overlays ...v1alpha1.Overlay) *v1alpha1.NamespaceTemplate {
	t.Helper()
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}, data: {a: b}}", i))
	}
	template := withOverlays(t, templateOf(t, all...), "[]")
	for i, overlay := range overlays {
		overlay.Name = fmt.Sprint("o", i)
		overlay.Namespaces = template.Spec.Namespaces
		template.Spec.Overlays = append(template.Spec.Overlays, overlay)
	}
	return template
}

// patching returns an overlay with a number of equal patches of all ConfigMaps.
func patching(count int, patch string) v1alpha1.Overlay {
	var overlay v1alpha1.Overlay
	for range count {
		overlay.Patches = append(overlay.Patches,
			v1alpha1.Patch{Patch: patch, Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"}})
	}
	return overlay
}

// adding returns a JSON patch that adds a field with a value.
func adding(field, value string) string {
	return fmt.Sprintf(`[{"op": "add", "path": "/%s", "value": %s}]`, field, value)
}

// entries returns an object in JSON with a number of keys.
func entries(count int) string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf(`"key%d": ""`, i)
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func repeated(text string, count int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", count), ",")
}

// A template of some kilobytes must not make kustomize build gigabytes.
func TestOverlaysThatNeedTooMuchMemoryOrTimeAreRejected(t *testing.T) {
	t.Parallel()
	texts := func(count int) map[string]string {
		all := map[string]string{}
		for i := range count {
			all[fmt.Sprint("key", i)] = strings.Repeat("a", 63)
		}
		return all
	}
	merging := func(patch string) *v1alpha1.NamespaceTemplate {
		return configMaps(t, 1, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{Patch: patch}}})
	}
	withPreviousNames := configMaps(t, 64, v1alpha1.Overlay{Patches: []v1alpha1.Patch{
		{
			Patch:  `[{"op": "copy", "from": "/data", "path": "/metadata/annotations"}]`,
			Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"},
		},
		{Patch: adding("data", entries(1500)), Target: &v1alpha1.PatchTarget{Name: "old"}},
	}})
	for i := range withPreviousNames.Spec.Templates {
		raw := &withPreviousNames.Spec.Templates[i].Raw
		*raw = bytes.Replace(*raw, []byte(`{"a":"b"}`), []byte(`{"internal.config.kubernetes.io/previousNames":"old",`+
			`"internal.config.kubernetes.io/previousKinds":"ConfigMap",`+
			`"internal.config.kubernetes.io/previousNamespaces":"default"}`), 1)
		require.Contains(t, string(*raw), "previousNames")
	}
	withSecrets := func(template *v1alpha1.NamespaceTemplate) *v1alpha1.NamespaceTemplate {
		template.Spec.Templates = templateOf(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, "+
			"secrets: ["+repeated("{name: s}", 5000)+"]}").Spec.Templates
		return template
	}
	withFinalizers := func(template *v1alpha1.NamespaceTemplate) *v1alpha1.NamespaceTemplate {
		template.Spec.Templates = templateOf(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, "+
			"finalizers: ["+repeated("a.b/c", 1000)+"]}}").Spec.Templates
		return template
	}
	withSelectors := patching(30, adding("data", "{}"))
	for _, patch := range withSelectors.Patches {
		patch.Target.LabelSelector = "a notin (" + repeated("b", 1000) + ")"
		patch.Target.AnnotationSelector = patch.Target.LabelSelector
	}
	none := &v1alpha1.PatchTarget{Kind: "Secret"}
	const tooMany, tooLong = "more than the allowed 131072", "it takes too long to apply it to"
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		want     string
	}{
		"one patch of all objects": {
			configMaps(t, 64, patching(1, adding("data", entries(1500)))), tooMany,
		},
		"a strategic merge patch of all objects": {
			configMaps(t, 64, patching(1,
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: c0}, data: "+entries(1500)+"}")), tooMany,
		},
		"many small patches": {configMaps(t, 64, patching(100, adding("data", entries(10)))), tooLong},
		"a long text": {
			configMaps(t, 64, patching(2, adding("data", `"`+strings.Repeat("a", 200000)+`"`))), tooMany,
		},
		"a patch of one object with many keys": {
			configMaps(t, 1, patching(1, adding("data", entries(30000)))), tooLong,
		},
		"copies": {
			configMaps(t, 16, patching(1, "["+repeated(`{"op": "copy", "from": "/data", "path": "/data/b"}`, 14)+"]")),
			tooMany,
		},
		"a YAML alias": {
			configMaps(t, 1, patching(1, "- {op: add, path: /data, value: &a [b]}\n- {op: add, path: /x, value: *a}")),
			"the patch has the YAML alias *a: write the value",
		},
		"an alias of what contains it": {
			configMaps(t, 1, patching(1, "- op: add\n  path: /data\n  value: &a [*a"+strings.Repeat(",0", 1000)+"]")),
			"the patch has the YAML alias *a",
		},
		"a merge key": {
			merging("{<<: {apiVersion: v1, kind: ConfigMap, metadata: {name: c0}}, data: {a: b}}"),
			"the patch has the key <<, which merges maps",
		},
		"equal keys without target": {
			merging("{a: 1, a: 2, a: 3}"), `the patch has the key "a" twice in one map: remove`,
		},
		"equal keys with target": {
			configMaps(t, 1, patching(1, "- {op: add, path: /data, value: {x: {[]: 1, []: 2}}}")),
			`the patch has the key "" twice in one map`,
		},
		"a merge that may change the kind": {
			merging("{apiVersion: v1, kind: ConfigMap, metadata: {name: c0, annotations: " +
				`{"internal.config.kubernetes\x2eio/allowKindChange": enabled}}}`),
			"the patch has an annotation of internal.config.kubernetes.io, which is reserved for kustomize: remove it",
		},
		"an operation that adds previous names": {
			configMaps(t, 1, patching(1, adding("metadata/annotations/internal.config.kubernetes.io~1previousNames",
				`"\ud83d\ude00"`))), "the patch has an annotation of internal.config.kubernetes.io",
		},
		"an operation that copies previous names": {
			withPreviousNames, tooMany,
		},
		"patches that select nothing": {
			configMaps(t, 1, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{
				Patch: adding("data", "["+repeated("0", 131072)+"]"), Target: &v1alpha1.PatchTarget{Kind: "Secret"},
			}}}), tooMany,
		},
		"many patches without target": {
			configMaps(t, 256, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{
				Patch: strings.Repeat("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c0}}\n", 3000),
			}}}), tooLong,
		},
		"small merges into an object with a long list": {
			withSecrets(merging(strings.Repeat(
				"---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, labels: {b: c}}}\n", 40))), tooLong,
		},
		"small merges into an object with a long list of texts": {
			withFinalizers(merging(strings.Repeat(
				"---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, labels: {b: c}}}\n", 20))), tooLong,
		},
		"small merges of a List into an object with a long list": {
			withSecrets(merging("{apiVersion: v1, kind: List, items: [" + repeated(
				"{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, labels: {b: c}}}", 5) + "]}")), tooLong,
		},
		"a patch with many keys that selects nothing": {
			configMaps(t, 1, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{
				Patch:  "{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: " + entries(25000) + "}}",
				Target: none,
			}}}), tooLong,
		},
		"long selectors": {configMaps(t, 256, withSelectors), tooLong},
		"an object that gets the name of another": {
			configMaps(t, 64, v1alpha1.Overlay{Patches: []v1alpha1.Patch{
				{Patch: adding("kind", `"Secret"`), Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"}},
				{Patch: adding("data", entries(1500)), Target: &v1alpha1.PatchTarget{Kind: "Secret"}},
				{Patch: adding("kind", `"ConfigMap"`), Target: &v1alpha1.PatchTarget{Kind: "Secret"}},
			}}), tooMany,
		},
		"an object that is replaced by another": {
			configMaps(t, 64, v1alpha1.Overlay{Patches: []v1alpha1.Patch{
				{
					Patch: `[{"op": "replace", "path": "", ` +
						`"value": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}}}]`,
					Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"},
				},
				{Patch: adding("data", entries(1500)), Target: &v1alpha1.PatchTarget{Kind: "Secret"}},
			}}), tooMany,
		},
		"labels":      {configMaps(t, 512, v1alpha1.Overlay{Labels: texts(128)}), tooMany},
		"annotations": {configMaps(t, 512, v1alpha1.Overlay{Annotations: texts(100)}), tooMany},
		"images": {
			configMaps(t, 100, v1alpha1.Overlay{
				Patches: patching(1, adding("data", `{"containers": [`+repeated(`{"image": "a"}`, 100)+"]}")).Patches,
				Images:  []v1alpha1.Image{{Name: "a", NewName: strings.Repeat("b", 1000)}},
			}), tooMany,
		},
		"a long pattern that is one only in parentheses": {
			configMaps(t, 1, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{
				Patch: adding("data", "{}"), Target: &v1alpha1.PatchTarget{Name: "a)|(?:(abcdefgh){1000}"},
			}}}), "the regular expressions of the target are too long, or repeat too much",
		},
		"a long pattern": {
			configMaps(t, 1, v1alpha1.Overlay{Patches: []v1alpha1.Patch{{
				Patch: adding("data", "{}"), Target: &v1alpha1.PatchTarget{Name: "(abcdefgh){1000}"},
			}}}), "the regular expressions of the target are too long, or repeat too much",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := len(test.template.Spec.Overlays) - 1
			overlay := test.template.Spec.Overlays[last]
			want := fmt.Sprintf("spec.overlays[%d]", last)
			problems := Vet(t.Context(), test.template, nil)
			require.NotEmpty(t, problems)
			_, compiles := Compile(t.Context(), test.template, []string{overlay.Name})
			_, caches := NewCache().Compile(test.template, nil)
			for _, err := range []error{problems[len(problems)-1], compiles, caches} {
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, "overlay "+overlay.Name+": ")
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

// Each of two overlays may be small enough, but not both together.
func TestOverlaysOfOneNamespaceThatAreTooLargeAreRejected(t *testing.T) {
	t.Parallel()
	template := configMaps(t, 64, patching(1, adding("a", entries(600))), patching(1, adding("b", entries(600))))
	require.NoError(t, CheckBudget(template))
	_, err := Compile(t.Context(), template, []string{"o0"})
	require.NoError(t, err)
	_, err = Compile(t.Context(), template, []string{"o0", "o1"})
	require.ErrorContains(t, err, "spec.overlays[1]: overlay o1: applied to all objects, it has about")
	_, err = Variants(t.Context(), template)
	require.ErrorIs(t, err, ErrCombinations)
}

// The results of all builds are kept while a template is vetted.
func TestResultsOfAllOverlaysAreLimited(t *testing.T) {
	t.Parallel()
	var overlays []v1alpha1.Overlay
	for range 5 {
		overlays = append(overlays, patching(1, adding("a", "["+repeated("0", 1000)+"]")))
	}
	require.NoError(t, CheckBudget(configMaps(t, 40, overlays[:1]...)))
	template := configMaps(t, 80, overlays...)
	require.ErrorContains(t, CheckBudget(template), "too many objects and overlays together, 80 and 5")
	_, err := NewCache().Compile(template, nil)
	require.NoError(t, err, "a stored template is populated, as each of its builds is small enough")
	require.ErrorIs(t, CheckCombinations(configMaps(t, 20, overlays...)), ErrCombinations)
}

// What kustomize builds is never larger than estimated.
func TestEstimatesAreUpperBounds(t *testing.T) {
	t.Parallel()
	all := &v1alpha1.PatchTarget{Name: "c.*"}
	patched := func(patches ...v1alpha1.Patch) v1alpha1.Overlay { return v1alpha1.Overlay{Patches: patches} }
	merge := func(text string) v1alpha1.Overlay { return patched(v1alpha1.Patch{Patch: text}) }
	operations := func(text string) v1alpha1.Overlay { return patched(v1alpha1.Patch{Patch: text, Target: all}) }
	const c1 = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c1}, data: {a: c}}"
	const c2 = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c2}, data: {d: e}}"
	for name, overlay := range map[string]v1alpha1.Overlay{
		"labels":      {Labels: map[string]string{"a": "b", "c": "d"}},
		"annotations": {Annotations: map[string]string{"a": "b"}},
		"images": {Images: []v1alpha1.Image{{
			Name: "nginx", NewName: "example.com/" + strings.Repeat("a", 500), Digest: "sha256:a",
		}}},
		"replicas": {Replicas: []v1alpha1.Replica{{Name: "web", Count: 3}}},
		"a merge": merge(
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {a: [b, c], d: e}}"),
		"a merge of a list": merge("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, " +
			"spec: {template: {spec: {containers: [{name: b, image: c}]}}}}"),
		"merges":           merge(c1 + "\n---\n" + c2),
		"a list of merges": merge("{apiVersion: v1, kind: List, items: [" + c1 + ", " + c2 + "]}"),
		"operations":       operations(adding("x", `{"y": [1, "2", true]}`)),
		"operations in YAML": operations(
			"- {op: add, path: /x, value: [1, 2]}\n- {op: add, path: /y, value: [[1, 2], [1, 2]]}"),
		"copies": operations("- {op: copy, from: /metadata, path: /metadata/a}\n" +
			"- {op: copy, from: /metadata, path: /metadata/b}"),
		"moves": operations(
			"- {op: move, from: /data/a, path: /data/b}\n- {op: test, path: /data/b, value: b}"),
		"JSON that is not YAML": operations(adding("data/b", `"\ud83d\ude00"`)),
		"two names for one object": patched(
			v1alpha1.Patch{
				Patch:  "- {op: replace, path: /metadata/name, value: d1}",
				Target: &v1alpha1.PatchTarget{Name: "c1"},
			},
			v1alpha1.Patch{
				Patch:  "- {op: add, path: /x, value: [a, b]}\n- {op: replace, path: /metadata/name, value: c1}",
				Target: &v1alpha1.PatchTarget{Name: "d1"},
			}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := configMaps(t, 3)
			template.Spec.Templates = append(template.Spec.Templates, templateOf(t,
				"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, "+
					"spec: {template: {spec: {containers: [{name: a, image: nginx}]}}}}").Spec.Templates...)
			objects, err := parseTemplate(template)
			require.NoError(t, err)
			estimated, problems := estimateBuild(sizesOf(objects), overlay)
			require.Empty(t, problems)
			built, err := applyOverlay(notCanceled, Part{}, overlay, objects)
			require.NoError(t, err)
			require.NotEqual(t, objects, built)
			for i, object := range sizesOf(built) {
				require.LessOrEqual(t, object.values, estimated.objects[i].values, object.name)
				require.LessOrEqual(t, object.text, estimated.objects[i].text, object.name)
			}
		})
	}
}

// A template that a platform team may write is far below the limits.
func TestLargeTemplatesAreAccepted(t *testing.T) {
	t.Parallel()
	var overlays []v1alpha1.Overlay
	for range 5 {
		overlay := patching(3, adding("data/color", `"blue"`))
		overlay.Labels = map[string]string{"tier": "production"}
		for i := range 20 {
			overlay.Patches = append(overlay.Patches, v1alpha1.Patch{Patch: fmt.Sprintf(
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}, data: {color: red, size: large}}", i)})
		}
		overlays = append(overlays, overlay)
	}
	template := configMaps(t, 60, overlays...)
	dashboard := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "dashboard"},
		"data": map[string]any{"dashboard.json": strings.Repeat(`{"title":"usage"},`, 20000)},
	}}
	data, err := dashboard.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, CheckBudget(template))
	require.NoError(t, CheckCombinations(template))
	template.Spec.Templates = append(template.Spec.Templates, templateOf(t, string(data)).Spec.Templates...)
	require.NoError(t, CheckBudget(template))
}

// A strategic merge replaces the lists of a NetworkPolicy, so long ones cost little. The path / in an Ingress does not
// replace an object, as it would in a JSON patch.
func TestLongListsThatAreNotMergedAreAccepted(t *testing.T) {
	t.Parallel()
	merge := func(apiVersion, kind, name, fields string) v1alpha1.Patch {
		return v1alpha1.Patch{Patch: "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: " + name + "}, " +
			fields + "}"}
	}
	template := configMaps(t, 10, v1alpha1.Overlay{Name: "o", Patches: []v1alpha1.Patch{
		merge("networking.k8s.io/v1", "NetworkPolicy", "n", "spec: {policyTypes: [Egress]}"),
		merge("networking.k8s.io/v1", "Ingress", "i", "spec: {rules: [{http: {paths: [{path: /}]}}]}"),
		merge("v1", "ConfigMap", "c0", "data: {a: c}"), merge("v1", "ConfigMap", "c1", "data: {a: c}"),
	}})
	template.Spec.Templates = append(template.Spec.Templates, templateOf(t, "{apiVersion: networking.k8s.io/v1, "+
		"kind: NetworkPolicy, metadata: {name: n}, spec: {podSelector: {}, egress: [{to: ["+
		repeated("{ipBlock: {cidr: 192.0.2.0/24}}", 5000)+"]}]}}").Spec.Templates...)
	require.NoError(t, CheckBudget(template))
}

// The selector of a target is parsed once, and not for each object.
func TestWarningsAboutTargetsNeedLittleMemory(t *testing.T) {
	template := configMaps(t, 200)
	objects, err := parseTemplate(template)
	require.NoError(t, err)
	target := &v1alpha1.PatchTarget{LabelSelector: "a in (" + repeated("b", 1000) + ")"}
	count := func(objects []*unstructured.Unstructured) float64 {
		return testing.AllocsPerRun(1, func() { require.True(t, selectsNothing(template, target, objects)) })
	}
	require.Less(t, count(objects), 2*count(objects[:1]))
}

// Each build of the search for the patch that fails takes as long as the overlay.
func TestFailingPatchNeedsFewBuilds(t *testing.T) {
	t.Parallel()
	objects, err := parseTemplate(configMaps(t, 1))
	require.NoError(t, err)
	overlay := patching(maxTriedPatches, adding("data/b", `"c"`))
	for failing := range overlay.Patches {
		overlay.Patches[failing].Patch = "[{op: remove, path: /nothing}]"
		builds := 0
		count := func() error {
			builds++
			return nil
		}
		require.Equal(t, failing, failingPatch(count, overlay, objects))
		require.LessOrEqual(t, builds, 4)
		overlay.Patches[failing].Patch = adding("data/b", `"c"`)
	}
	require.Equal(t, -1, failingPatch(notCanceled, overlay, objects))
}

// Only a kind with items is a list for kustomize.
func TestAKindThatEndsInListIsNotEstimatedAsAList(t *testing.T) {
	t.Parallel()
	sizes := func(text string) []patchSize {
		all, err := sizesOfPatch(v1alpha1.Patch{Patch: text})
		require.NoError(t, err)
		return all
	}
	const merge = "{apiVersion: example.dev/v1, kind: AccessList, metadata: {name: a}, spec: {b: c}}"
	require.Equal(t, sizes(strings.Replace(merge, "List", "Tree", 1))[0].size, sizes(merge)[0].size)
	require.Greater(t, sizes(strings.Replace(merge, "spec", "items", 1))[0].values, 8*sizes(merge)[0].values-1)
}

// A caller that has given up while another one builds does not build.
func TestACanceledBuildDoesNotBegin(t *testing.T) {
	objects, err := parseTemplate(configMaps(t, 1))
	require.NoError(t, err)
	canceled := errors.New("canceled")
	asked := false
	_, err = build(func() error {
		asked = true
		if kustomizeLock.TryLock() {
			kustomizeLock.Unlock() // other tests build, too
			t.Error("it asks before it is its turn")
		}
		return canceled
	}, kustomizationOf(v1alpha1.Overlay{}), objects)
	require.True(t, asked)
	require.ErrorIs(t, err, canceled)
}
