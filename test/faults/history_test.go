package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	const limit = 2
	at := func(what operation, object string, came outcome, called, over int) done {
		return done{
			operation: what, object: object, outcome: came, called: time.Duration(called), over: time.Duration(over),
		}
	}
	for name, test := range map[string]struct {
		events []done
		there  []string
		within bool
	}{
		"empty": {nil, nil, true},
		"full": {
			[]done{at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3)}, []string{"a", "b"}, true,
		},
		"one too many": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(create, "c", accepted, 4, 5),
		}, []string{"a", "b", "c"}, false},
		"refused ones don't count": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(create, "c", refused, 4, 5),
		}, []string{"a", "b"}, true},
		"room was made before": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(destroy, "a", accepted, 4, 5),
			at(create, "c", accepted, 6, 7),
		}, []string{"b", "c"}, true},
		"room was made meanwhile": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(create, "c", accepted, 4, 8),
			at(destroy, "a", accepted, 5, 6),
		}, []string{"b", "c"}, true},
		"room was made too late": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(create, "c", accepted, 4, 5),
			at(destroy, "a", accepted, 6, 7),
		}, []string{"b", "c"}, false},
		"a lost answer, and the object exists": {
			[]done{
				at(create, "a", accepted, 0, 1), at(create, "b", unknown, 2, 3), at(create, "c", accepted, 4, 5),
				at(destroy, "c", accepted, 6, 7),
			}, []string{"a", "b"}, true,
		},
		"a lost answer, and the object exists in excess of the limit": {
			[]done{at(create, "a", accepted, 0, 1), at(create, "b", unknown, 2, 3), at(create, "c", accepted, 4, 5)},
			[]string{"a", "b", "c"}, false,
		},
		"a lost answer, and the object does not exist": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", unknown, 2, 3), at(create, "c", accepted, 4, 5),
		}, []string{"a", "c"}, true},
		"a lost answer, and the object was deleted": {
			[]done{at(create, "a", unknown, 0, 1), at(destroy, "a", accepted, 2, 3)}, nil, true,
		},
		"a lost answer, and the object was deleted after the limit was exceeded": {[]done{
			at(create, "b", accepted, 0, 1), at(create, "a", unknown, 2, 3), at(create, "c", accepted, 4, 5),
			at(destroy, "a", accepted, 6, 7),
		}, []string{"b", "c"}, false},
		"a lost answer to a creation and to the deletion": {
			[]done{at(create, "a", unknown, 0, 1), at(destroy, "a", unknown, 2, 3)}, nil, true,
		},
		"a lost deletion that was": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(destroy, "a", unknown, 4, 5),
			at(create, "c", accepted, 6, 7),
		}, []string{"b", "c"}, true},
		"a lost deletion that was not executed": {[]done{
			at(create, "a", accepted, 0, 1), at(create, "b", accepted, 2, 3), at(destroy, "a", unknown, 4, 5),
			at(create, "c", accepted, 6, 7),
		}, []string{"a", "b", "c"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			h.events = test.events
			there := map[string]string{}
			for _, object := range test.there {
				there[object] = "namespace"
			}
			require.Equal(t, test.within, len(h.check(limit, there)) == 0)
		})
	}
}
