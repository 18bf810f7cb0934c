package leadership

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMissing(t *testing.T) {
	type versions = map[string]string
	for name, c := range map[string]struct {
		stored, known versions
		asOf          string
		// deleted are objects that are found not to exist any more.
		deleted []string
		want    []string
	}{
		"nothing": {asOf: "10"},
		"as it was stored": {
			stored: versions{"a": "3", "b": "9"}, known: versions{"a": "3", "b": "9"}, asOf: "10",
		},
		"newer": {stored: versions{"a": "3"}, known: versions{"a": "11"}, asOf: "10"},
		"older, as numbers": {
			stored: versions{"a": "10", "b": "10"}, known: versions{"a": "9", "b": "10"}, asOf: "10",
			want: []string{"/a"},
		},
		"not known": {
			stored: versions{"b": "3", "a": "4"}, known: versions{}, asOf: "10", want: []string{"/a", "/b"},
		},
		"created since": {
			stored: versions{"a": "3"}, known: versions{"a": "3", "b": "11"}, asOf: "10",
		},
		"deleted before": {
			stored: versions{"a": "3"}, known: versions{"a": "3", "b": "9"}, asOf: "10", want: []string{"/b"},
		},
		"deleted as the last thing": {
			stored: versions{}, known: versions{"b": "10"}, asOf: "10", want: []string{"/b"},
		},
		"deleted since, and never known": {
			stored: versions{"a": "3", "b": "4"}, known: versions{"b": "4"}, asOf: "10", deleted: []string{"a"},
		},
		"deleted since, and not known to be": {
			stored: versions{"a": "3"}, known: versions{"a": "2"}, asOf: "10", deleted: []string{"a"},
			want: []string{"/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := func(from versions) map[client.ObjectKey]string {
				to := map[client.ObjectKey]string{}
				for name, version := range from {
					to[client.ObjectKey{Name: name}] = version
				}
				return to
			}
			stored := Stored{versions: keys(c.stored), asOf: c.asOf}
			if c.deleted != nil {
				now := Stored{versions: keys(c.stored)}
				for _, name := range c.deleted {
					delete(now.versions, client.ObjectKey{Name: name})
				}
				now.versions[client.ObjectKey{Name: "created since"}] = "12"
				stored.forgetDeleted(now)
			}
			require.Equal(t, c.want, stored.missing(keys(c.known)))
		})
	}
}
