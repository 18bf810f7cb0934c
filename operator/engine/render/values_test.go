package render

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	big    = int64(9007199254740993) // 2^53 + 1
	bigger = int64(9223372036854775807)
)

func TestLargeIntegersPassThroughOverlays(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string]string{
		"a JSON patch of another field": `'[{"op": "add", "path": "/spec/b", "value": 9223372036854775807}]'`,
		"a JSON patch in YAML":          `"- {op: add, path: /spec/b, value: 9223372036854775807}"`,
		"a JSON patch that tests": `'[{"op": "test", "path": "/spec/a", "value": 9007199254740993},
    {"op": "add", "path": "/spec/b", "value": 9223372036854775807}]'`,
		"characters before it":    `'[{"op": "test", "path": "/spec/text", "value": "integer:9007199254740993"}, {"op": "add", "path": "/spec/ä", "value": "ä"}, {"op": "move", "from": "/spec/ä", "path": "/spec/b"}, {"op": "test", "path": "/spec/b", "value": "ä"}, {"op": "add", "path": "/spec/b", "value": 9223372036854775807}]'`,
		"two in one line":         `'[{"op": "test", "path": "/spec/a", "value": 9007199254740993}, {"op": "add", "path": "/spec/b", "value": 9223372036854775807}]'`,
		"a strategic merge patch": `'{apiVersion: example.com/v1, kind: Widget, metadata: {name: any}, spec: {b: 9223372036854775807}}'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := withOverlays(t, templateOf(t, `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {a: 9007199254740993, less: -9007199254740993, text: "integer:9007199254740993", near: 0.5}`), `
- name: a
  labels: {a: b}
  patches: [{target: {kind: Widget}, patch: `+patch+`}]`)
			spec := declared(t, template, "a")[0].Object["spec"]
			require.Equal(t, map[string]any{
				"a": big, "b": bigger, "less": -big, "text": "integer:9007199254740993", "near": 0.5,
			}, spec)
		})
	}
}

func TestLargeIntegersInPatchesWithSeveralDocuments(t *testing.T) {
	t.Parallel()
	template := withOverlays(t, templateOf(t,
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}",
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: b}}"), `
- name: a
  patches:
  - patch: |
      {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {n: 9007199254740993}}
      ---
      {apiVersion: example.com/v1, kind: Widget, metadata: {name: b}, spec: {n: 2}}`)
	objects := declared(t, template, "a")
	require.Equal(t, map[string]any{"n": big}, objects[0].Object["spec"])
	require.Equal(t, map[string]any{"n": int64(2)}, objects[1].Object["spec"])
}

// The API server and kubectl take null for a missing field, so an object must have the same hash with and without it.
func TestNullsAreAbsent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ withNull, without string }{
		"metadata": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, creationTimestamp: null, labels: null}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
		},
		"data": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: null}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
		},
		"a key of a Secret": {
			"{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {d: null, e: YQ==}}",
			"{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {e: YQ==}}",
		},
		"a selector": {
			"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {matchLabels: null}}}",
			"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}}",
		},
		"items of a list": {
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: a, resources: null}]}}}}",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {}, spec: {containers: [{name: a}]}}}}",
		},
		"metadata and status of a custom resource": {
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, creationTimestamp: null}, status: null}",
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNull, without := declared(t, templateOf(t, test.withNull))[0], declared(t, templateOf(t, test.without))[0]
			require.Equal(t, without.Object, withNull.Object)
			require.Equal(t, without.Hash, withNull.Hash)
		})
	}
}

func TestNullsThatAreValuesAreKept(t *testing.T) {
	t.Parallel()
	object := declared(t, templateOf(t,
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {nullable: null}}"))[0]
	require.Equal(t, map[string]any{"nullable": nil}, object.Object["spec"])
}

func TestNullsOfOverlaysAreAbsent(t *testing.T) {
	t.Parallel()
	template := withOverlays(t, templateOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}"),
		`[{name: o, patches: [{target: {kind: ConfigMap}, patch: '[{"op": "add", "path": "/data/c", "value": null}]'}]}]`)
	require.Equal(t, map[string]any{"a": "b"}, declared(t, template, "o")[0].Object["data"])
}

func TestDropNullsKeepsItemsOfLists(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{}
	require.NoError(t, utiljson.Unmarshal([]byte(`{"apiVersion":"v1","a":[null,{"b":null}]}`), &object.Object))
	DropNulls(object.Object)
	require.Equal(t, map[string]any{"apiVersion": "v1", "a": []any{nil, map[string]any{}}}, object.Object)
}

func TestWarningsAboutOverlaysThatChangeNothing(t *testing.T) {
	t.Parallel()
	const objects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gate, labels: {tier: edge}}
spec: {template: {spec: {containers: [{name: a, image: "registry.example.com:5000/gate:1"}]}}}`
	const noTarget = "spec.overlays[0].patches[0].target: selects no object of the template, so the patch changes " +
		"nothing: correct the target, or remove the patch"
	patch := func(target string) string {
		return `[{name: o, patches: [{target: ` + target + `, patch: '[{"op": "remove", "path": "/spec/a"}]'}]}]`
	}
	for name, test := range map[string]struct{ overlays, want string }{
		"another name":          {patch("{kind: Deployment, name: gat}"), noTarget},
		"another kind":          {patch("{kind: DaemonSet}"), noTarget},
		"another group":         {patch("{group: extensions}"), noTarget},
		"another label":         {patch("{labelSelector: tier=core}"), noTarget},
		"another annotation":    {patch("{annotationSelector: a=b}"), noTarget},
		"the name":              {patch("{kind: Deployment, name: gate}"), ""},
		"a regular expression":  {patch("{name: g.*|a}"), ""},
		"an empty target":       {patch("{}"), ""},
		"the label":             {patch("{labelSelector: tier=edge}"), ""},
		"a label of an overlay": {`[{name: a, labels: {tier: core}}, ` + patch("{labelSelector: tier=core}")[1:], ""},
		"the image":             {"[{name: o, images: [{name: 'registry.example.com:5000/gate', newTag: '2'}]}]", ""},
		"an image of a patch":   {`[{name: o, images: [{name: b, newTag: '2'}], patches: [{target: {name: gate}, patch: '[{"op": "add", "path": "/spec/template/spec/containers/0/image", "value": "b"}]'}]}]`, ""},
		"the beginning of an image": {
			"[{name: o, images: [{name: 'registry.example.com:5000/gat', newTag: '2'}]}]",
			"spec.overlays[0].images[0].name: no container of the template has the image registry.example.com:5000/gat, " +
				"so the overlay changes no image: write the name without tag and digest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warnings := Warnings(withOverlays(t, templateOf(t, objects), test.overlays))
			if test.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Equal(t, []string{test.want}, warnings)
		})
	}
}
