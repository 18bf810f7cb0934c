package why

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const denial = `admission webhook "hold.policy.nstpl.dev" denied the request: no (nstpl:held)`
	for name, test := range map[string]struct {
		args []string
		want subject
		err  string
	}{
		"a namespace":           {args: []string{"ns/team-a"}, want: subject{resource: "ns", name: "team-a"}},
		"type and name":         {args: []string{"pod", "web"}, want: subject{resource: "pod", name: "web"}},
		"a group":               {args: []string{"netpol.networking.k8s.io/x"}, want: subject{resource: "netpol.networking.k8s.io", name: "x"}},
		"a role with a colon":   {args: []string{"role/a:b"}, want: subject{resource: "role", name: "a:b"}},
		"a message":             {args: []string{denial}, want: subject{message: denial}},
		"a message, not quoted": {args: []string{"Error", "from", "server"}, want: subject{message: "Error from server"}},
		"two words of a message": {
			args: []string{"Forbidden:", "no"}, want: subject{message: "Forbidden: no"},
		},
		"a message without spaces around a code": {args: []string{"x(nstpl:held)"}, want: subject{message: "x(nstpl:held)"}},
		"a code":                                 {args: []string{"held"}, want: subject{message: " (nstpl:held)"}},
		"a code with its prefix":                 {args: []string{"nstpl:held"}, want: subject{message: " (nstpl:held)"}},
		"nothing":                                {err: "specify an object as TYPE/NAME, files with -f, or an error message"},
		"an empty argument":                      {args: []string{""}, err: "specify an object as TYPE/NAME, files with -f, or an error message"},
		"a bare name": {
			args: []string{"team-a"}, want: subject{resource: "namespaces", name: "team-a"},
		},
		"a word": {
			args: []string{"Forbidden"},
			err:  `"Forbidden" is neither a namespace, nor an object as TYPE/NAME, nor an error message`,
		},
		"no name":   {args: []string{"ns/"}, err: `"ns/" is not an object as TYPE/NAME, such as namespace/team-a`},
		"two names": {args: []string{"ns/a/b"}, err: `"ns/a/b" is not an object as TYPE/NAME, such as namespace/team-a`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(test.args)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
