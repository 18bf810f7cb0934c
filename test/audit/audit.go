// Package audit reads the writes in an API server's audit log.
package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// policy logs every write twice: when it is received, so that it is in the log before its effects are visible, and when
// it is complete, with its outcome.
const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

// Log is the audit log of an API server. It is safe for concurrent use.
type Log struct {
	// Path is the path of the file.
	Path string

	mu       sync.Mutex
	offset   int64
	requests []Request
}

// Request is a write at one of its stages.
type Request struct {
	Stage      string
	Verb       string
	RequestURI string
	User       struct{ Username string }
	UserAgent  string
	ObjectRef  struct {
		Resource, Subresource, APIGroup string
		Namespace, Name                 string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// NewLog returns a log in a folder, and the flags with which an API server writes it.
func NewLog(folder string) (log *Log, flags []string, err error) {
	log = &Log{Path: filepath.Join(folder, "audit.log")}
	file := filepath.Join(folder, "audit-policy.yaml")
	return log, []string{
		"--audit-policy-file=" + file, "--audit-log-path=" + log.Path, "--audit-log-mode=blocking",
		"--audit-log-maxsize=100000",
	}, os.WriteFile(file, []byte(policy), 0o600)
}

// Read returns all requests so far.
func (a *Log) Read() ([]Request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	file, err := os.Open(a.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	for {
		line, rest, whole := bytes.Cut(content, []byte("\n"))
		if !whole {
			return a.requests, nil
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", a.Path, err, line)
		}
		a.requests = append(a.requests, r)
		a.offset += int64(len(line)) + 1
		content = rest
	}
}

// Now returns the current end of the log, for WritesSince.
func (a *Log) Now() (int, error) {
	requests, err := a.Read()
	return len(requests), err
}

// WritesSince is WritesOf for the operator.
func (a *Log) WritesSince(point int, counted func(Request) bool) ([]Request, error) {
	return a.WritesOf(v1alpha1.OperatorUser, point, counted)
}

// WritesOf returns a user's write requests after a position of the log. It omits Events, leases and requests that store
// nothing.
func (a *Log) WritesOf(user string, point int, counted func(Request) bool) ([]Request, error) {
	requests, err := a.Read()
	var writes []Request
	for _, r := range requests[min(point, len(requests)):] {
		if r.Stage == "RequestReceived" && r.User.Username == user && !r.storesNothing() &&
			counted(r) {
			writes = append(writes, r)
		}
	}
	return writes, err
}

// Count counts requests by verb and resource: "patch configmaps".
func Count(requests []Request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		what := r.Verb + " " + r.ObjectRef.Resource
		if r.ObjectRef.Subresource != "" {
			what += "/" + r.ObjectRef.Subresource
		}
		counts[what]++
	}
	return counts
}

// isForcedApply reports whether a request is a server-side apply as the operator and nstpl-sync send it. Other patches
// create nothing.
func (r Request) isForcedApply() bool {
	return r.Verb == "patch" && strings.Contains(r.RequestURI, "force=true")
}

// Stateless are resources whose writes store nothing that tests check.
var Stateless = []string{"events", "leases", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews"}

func (r Request) storesNothing() bool {
	return slices.Contains(Stateless, r.ObjectRef.Resource) || strings.Contains(r.RequestURI, "dryRun=All")
}

// CheckDeletions fails if the operator deleted an object that it had not created, and whose deletion is not expected.
func (a *Log) CheckDeletions(expected func(Request) bool) error {
	return a.CheckDeletionsOf(v1alpha1.OperatorUser, 0, expected)
}

// CheckDeletionsOf is CheckDeletions for a user, and for objects that were created and deleted after a position of the
// log.
func (a *Log) CheckDeletionsOf(user string, point int, expected func(Request) bool) error {
	requests, err := a.Read()
	if err != nil {
		return err
	}
	type object struct{ group, resource, namespace, name string }
	creators := map[object]string{}
	former := map[object]string{} // a deletion may be repeated while the object is being deleted
	// unanswered counts a user's creations without a logged answer, which alone would name the object.
	unanswered := map[object]int{}
	var errs []error
	for _, r := range requests[min(point, len(requests)):] {
		if r.ObjectRef.Subresource != "" || r.storesNothing() {
			continue
		}
		about := object{r.ObjectRef.APIGroup, r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name}
		kind := about
		kind.name = ""
		done := r.Stage == "ResponseComplete"
		switch {
		case r.Verb != "create" || r.User.Username != user:
		case done:
			unanswered[kind]--
		case r.Stage == "RequestReceived":
			unanswered[kind]++
		}
		switch {
		case !done && r.isForcedApply() && creators[about] == "":
			creators[about] = r.User.Username // the answer is not logged if the client is killed meanwhile
		case done && r.ResponseStatus.Code == 201:
			creators[about] = r.User.Username
		case done && r.Verb == "delete" && r.ResponseStatus.Code == 200:
			creator := cmp.Or(creators[about], former[about])
			if r.User.Username == user && creator == "" && unanswered[kind] > 0 {
				creator = user
				unanswered[kind]--
			}
			if r.User.Username == user && creator != user && !expected(r) {
				errs = append(errs, fmt.Errorf("%s deleted %+v, which %q had created", user, about, creators[about]))
			}
			former[about] = cmp.Or(creators[about], former[about])
			delete(creators, about)
		}
	}
	return errors.Join(errs...)
}
