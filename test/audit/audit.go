// Package audit reads what an API server has written down about all writes.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Policy has every write logged twice: when it comes in, so that it is in the log before anybody can see what it
// did, and when it is done, with its outcome.
const Policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

// Log is what the API server writes down. It may be read by several tests at once.
type Log struct {
	// Path is that of the file.
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

// Now returns how much is in the log, for WritesSince.
func (a *Log) Now() (int, error) {
	requests, err := a.Read()
	return len(requests), err
}

// WritesSince returns what the operator asked for since a point in the log. Events and leases are left out, and what
// stores nothing.
func (a *Log) WritesSince(point int, counted func(Request) bool) ([]Request, error) {
	requests, err := a.Read()
	var writes []Request
	for _, r := range requests[min(point, len(requests)):] {
		if r.Stage == "RequestReceived" && r.User.Username == v1alpha1.OperatorUser && !r.storesNothing() &&
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

func (r Request) storesNothing() bool {
	switch r.ObjectRef.Resource {
	case "events", "leases", "selfsubjectaccessreviews", "subjectaccessreviews":
		return true
	}
	return strings.Contains(r.RequestURI, "dryRun=All")
}

// CheckDeletions fails if the operator deleted an object that it had not created, and that is not expected.
func (a *Log) CheckDeletions(expected func(Request) bool) error {
	return a.CheckDeletionsSince(0, expected)
}

// CheckDeletionsSince is CheckDeletions for what was created and deleted since a point in the log.
func (a *Log) CheckDeletionsSince(point int, expected func(Request) bool) error {
	requests, err := a.Read()
	if err != nil {
		return err
	}
	type object struct{ group, resource, namespace, name string }
	creators := map[object]string{}
	var errs []error
	for _, r := range requests[min(point, len(requests)):] {
		if r.ObjectRef.Subresource != "" || r.storesNothing() {
			continue
		}
		about := object{r.ObjectRef.APIGroup, r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name}
		switch done := r.Stage == "ResponseComplete"; {
		case !done && r.Verb == "patch" && creators[about] == "":
			creators[about] = r.User.Username // the answer is not logged if who asked is killed meanwhile
		case done && r.ResponseStatus.Code == 201:
			creators[about] = r.User.Username
		case done && r.Verb == "delete" && r.ResponseStatus.Code == 200:
			if r.User.Username == v1alpha1.OperatorUser && creators[about] != v1alpha1.OperatorUser && !expected(r) {
				errs = append(errs,
					fmt.Errorf("the operator deleted %+v, which %q had created", about, creators[about]))
			}
			delete(creators, about)
		}
	}
	return errors.Join(errs...)
}
