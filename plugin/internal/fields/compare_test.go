package fields_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/plugin/internal/fields"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var decoded map[string]any
	require.NoError(t, utiljson.Unmarshal([]byte(text), &decoded))
	return decoded
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"equal": {`{"a": [{"b": 1}]}`, `{"a": [{"b": 1}]}`, nil},
		"a scalar": {
			`{"spec": {"hard": {"pods": "50", "services": "5"}}}`,
			`{"spec": {"hard": {"pods": "60", "services": "5"}}}`,
			[]string{"spec.hard.pods 50 -> 60"},
		},
		"a number that becomes a string": {`{"a": 1}`, `{"a": "1"}`, []string{`a 1 -> "1"`}},
		"strings with spaces or line breaks, and empty ones": {
			`{"a": "x y", "b": "", "c": "1\n2"}`, `{"a": "z", "b": "x", "c": ""}`,
			[]string{`a "x y" -> z`, `b "" -> x`, `c "1\n2" -> ""`},
		},
		"names that contain dots": {
			`{"metadata": {"annotations": {"example.com/a": "1"}}}`,
			`{"metadata": {"annotations": {"example.com/a": "2"}}}`,
			[]string{"metadata.annotations[example.com/a] 1 -> 2"},
		},
		"an added subtree": {`{"a": 1}`, `{"a": 1, "b": {"c": {"d": 1}}}`, []string{`b added: {"c":{"d":1}}`}},
		"a removed subtree": {
			`{"a": {"x": 1, "y": [1]}}`, `{"a": {"x": 1}}`, []string{`a.y removed: [1]`},
		},
		"null is not a missing field": {`{"a": null}`, `{}`, []string{"a removed: null"}},
		"a map that becomes a list":   {`{"a": {}}`, `{"a": []}`, []string{"a {} -> []"}},
		"containers by name": {
			`{"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]}`,
			`{"containers": [{"name": "sidecar"}, {"name": "a", "image": "x:1"}, {"name": "b", "image": "y:2"}]}`,
			[]string{"containers[name=b].image y:1 -> y:2", `containers[name=sidecar] added: {"name":"sidecar"}`},
		},
		"ports by port and protocol": {
			`{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "x": 1}]}`,
			`{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "x": 2}]}`,
			[]string{"ports[port=53,protocol=TCP].x 1 -> 2"},
		},
		"limits by type": {
			`{"limits": [{"type": "Container", "max": {"cpu": "1"}}]}`,
			`{"limits": [{"type": "Container", "max": {"cpu": "2"}}]}`,
			[]string{"limits[type=Container].max.cpu 1 -> 2"},
		},
		"a replaced item with a key": {
			`{"subjects": [{"kind": "User", "name": "bob"}]}`, `{"subjects": [{"kind": "User", "name": "jane"}]}`,
			[]string{
				`subjects[name=bob] removed: {"kind":"User","name":"bob"}`,
				`subjects[name=jane] added: {"kind":"User","name":"jane"}`,
			},
		},
		"subjects of the same name by kind and name": {
			`{"subjects": [{"kind": "User", "name": "a"}, {"kind": "Group", "name": "a", "x": 1}]}`,
			`{"subjects": [{"kind": "User", "name": "a"}, {"kind": "Group", "name": "a", "x": 2}]}`,
			[]string{"subjects[kind=Group,name=a].x 1 -> 2"},
		},
		"a set": {
			`{"rules": [{"verbs": ["get", "list"]}]}`, `{"rules": [{"verbs": ["watch", "get"]}]}`,
			[]string{"rules[0].verbs[list] removed", "rules[0].verbs[watch] added"},
		},
		"another order": {
			`{"verbs": ["get", "list"]}`, `{"verbs": ["list", "get"]}`,
			[]string{`verbs ["get","list"] -> ["list","get"]`},
		},
		"a list that was empty": {`{"a": []}`, `{"a": ["x"]}`, []string{`a [] -> ["x"]`}},
		"items without a key, of which one changes": {
			`{"rules": [{"v": ["a"]}, {"v": ["b"]}, {"v": ["c"]}]}`,
			`{"rules": [{"v": ["a"]}, {"v": ["x"]}, {"v": ["c"]}]}`,
			[]string{"rules[1].v[b] removed", "rules[1].v[x] added"},
		},
		"items without a key, of which one is removed": {
			`{"rules": [{"v": ["a"]}, {"v": ["b"]}, {"v": ["c"]}]}`, `{"rules": [{"v": ["a"]}, {"v": ["c"]}]}`,
			[]string{`rules[1] removed: {"v":["b"]}`},
		},
		"items without a key, of which one is added": {
			`{"rules": [{"v": ["a"]}, {"v": ["c"]}]}`, `{"rules": [{"v": ["a"]}, {"v": ["b"]}, {"v": ["c"]}]}`,
			[]string{`rules[1] added: {"v":["b"]}`},
		},
		"duplicate values": {`{"args": ["a", "a", "b"]}`, `{"args": ["a", "b"]}`, []string{"args[1] removed: a"}},
		"a long text that changes near its end": {
			`{"a": "0123456789012345678901234567890123456789012345678901234567890123456789-old"}`,
			`{"a": "0123456789012345678901234567890123456789012345678901234567890123456789-new"}`,
			[]string{"a …1234567890123456789-old -> …1234567890123456789-new"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := object(t, test.from), object(t, test.to)
			changes := fields.Compare(from, to)
			var got []string
			for _, change := range changes {
				got = append(got, change.String())
			}
			require.Equal(t, test.want, got)
			require.Equal(t, to, fields.Apply(t, from, changes))
		})
	}
}

// FuzzCompare checks that the changes between two objects turn the first into the second.
func FuzzCompare(f *testing.F) {
	f.Add([]byte("\x00\x01\x02"), []byte{})
	f.Add([]byte("the quick brown fox jumps over the lazy dog"), []byte("the quick brown dog jumps over the lazy fox"))
	f.Add([]byte{6, 6, 6, 7, 7, 7, 1, 2, 3, 250, 128, 3, 4, 5, 6}, []byte{6, 6, 7, 7, 7, 1, 2, 3, 251, 127, 9, 4, 4, 6})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		from, to := (&generator{a}).fields(0), (&generator{b}).fields(0)
		before := runtime.DeepCopyJSON(from)
		changes := fields.Compare(from, to)
		require.Equal(t, before, from, "Compare must not change its arguments")
		require.Equal(t, to, fields.Apply(t, from, changes))
		for _, change := range changes {
			require.NotEmpty(t, change.String())
			require.False(t, change.Added && change.Removed)
		}
		require.Empty(t, fields.Compare(to, to))
		if len(changes) > 0 {
			require.NotEqual(t, encoded(t, from), encoded(t, to))
		}
	})
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}

// generator makes objects of random bytes. Few names and values are in use, so that two objects have much in common.
type generator struct{ random []byte }

func (g *generator) next(below int) int {
	if len(g.random) == 0 {
		return 0
	}
	value := int(g.random[0]) % below
	g.random = g.random[1:]
	return value
}

func (g *generator) fields(depth int) map[string]any {
	value := map[string]any{}
	for range g.next(4) {
		name := []string{"name", "kind", "port", "protocol", "spec", "a.b/c"}[g.next(6)]
		value[name] = g.value(depth + 1)
	}
	return value
}

func (g *generator) value(depth int) any {
	kinds := 10
	if depth > 4 {
		kinds = 6
	}
	switch g.next(kinds) {
	case 0, 1:
		return []string{"a", "b", "1", ""}[g.next(4)]
	case 2, 3:
		return int64(g.next(3))
	case 4:
		return g.next(2) == 0
	case 5:
		return nil
	case 6, 7:
		return g.fields(depth)
	}
	items := []any{}
	isNamed := g.next(2) == 0
	for range g.next(5) {
		item := g.value(depth + 1)
		if fields, ok := item.(map[string]any); ok && isNamed {
			fields["name"] = []string{"a", "b", "c"}[g.next(3)]
		}
		items = append(items, item)
	}
	return items
}
