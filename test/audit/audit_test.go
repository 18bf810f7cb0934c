package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckDeletions checks who is taken to have created a deleted object.
func TestCheckDeletions(t *testing.T) {
	t.Parallel()
	const received, complete = "RequestReceived", "ResponseComplete"
	request := func(stage, verb, user, query string, code int) Request {
		r := Request{Stage: stage, Verb: verb, RequestURI: "/api/v1/namespaces/a/configmaps/b" + query}
		r.User.Username, r.ResponseStatus.Code = user, code
		r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name = "configmaps", "a", "b"
		return r
	}
	for name, test := range map[string]struct {
		requests  []Request
		forbidden bool
	}{
		"of its own": {[]Request{
			request(complete, "create", "me", "", 201), request(complete, "delete", "me", "", 200),
		}, false},
		"of another": {[]Request{
			request(complete, "create", "other", "", 201), request(complete, "delete", "me", "", 200),
		}, true},
		"an apply whose answer is not logged": {[]Request{
			request(received, "patch", "me", "?fieldManager=nstpl&force=true", 0), request(complete, "delete", "me", "", 200),
		}, false},
		"a creation whose answer is not logged": {[]Request{
			request(received, "create", "me", "", 0), request(complete, "delete", "me", "", 200),
		}, false},
		"one of two creations whose answers are not logged": {[]Request{
			request(received, "create", "me", "", 0), request(received, "create", "me", "", 0),
			request(complete, "create", "me", "", 409), request(complete, "delete", "me", "", 200),
		}, false},
		"a creation that failed": {[]Request{
			request(received, "create", "me", "", 0), request(complete, "create", "me", "", 409),
			request(complete, "delete", "me", "", 200),
		}, true},
		"repeated, after another removed a finalizer": {[]Request{
			request(complete, "create", "me", "", 201), request(complete, "delete", "me", "", 200),
			request(received, "patch", "other", "", 0), request(complete, "patch", "other", "", 200),
			request(complete, "delete", "me", "", 200),
		}, false},
		"created again by another": {[]Request{
			request(complete, "create", "me", "", 201), request(complete, "delete", "me", "", 200),
			request(complete, "create", "other", "", 201), request(complete, "delete", "me", "", 200),
		}, true},
		"not found": {[]Request{
			request(complete, "create", "other", "", 201), request(complete, "delete", "me", "", 404),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &Log{Path: filepath.Join(t.TempDir(), "audit.log")}
			file, err := os.Create(log.Path)
			require.NoError(t, err)
			for _, r := range test.requests {
				require.NoError(t, json.NewEncoder(file).Encode(r))
			}
			require.NoError(t, file.Close())
			err = log.CheckDeletionsOf("me", 0, func(Request) bool { return false })
			require.Equal(t, test.forbidden, err != nil, "%v", err)
		})
	}
}
