package integration_test

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

// auditPolicy has every write logged twice: when it comes in, so that it is in the log before anybody can see what it
// did, and when it is done, with its outcome.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

const operatorUser = "system:serviceaccount:" + v1alpha1.OperatorNamespace + ":nstpl-operator"

// auditLog is what the API server writes down. It may be read by several tests at once.
type auditLog struct {
	path string

	mu       sync.Mutex
	offset   int64
	requests []request
}

// request is a write at one of its stages.
type request struct {
	Stage      string
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  struct {
		Resource, Subresource, APIGroup string
		Namespace, Name                 string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// read returns all requests so far.
func (a *auditLog) read() ([]request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	file, err := os.Open(a.path)
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
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", a.path, err, line)
		}
		a.requests = append(a.requests, r)
		a.offset += int64(len(line)) + 1
		content = rest
	}
}

// now returns how much is in the log, for writesSince.
func (a *auditLog) now() (int, error) {
	requests, err := a.read()
	return len(requests), err
}

// writesSince returns what the operator asked for since a point in the log. Events and leases are left out, and what
// stores nothing.
func (a *auditLog) writesSince(point int, counted func(request) bool) ([]request, error) {
	requests, err := a.read()
	var writes []request
	for _, r := range requests[min(point, len(requests)):] {
		if r.Stage == "RequestReceived" && r.User.Username == operatorUser && !r.storesNothing() && counted(r) {
			writes = append(writes, r)
		}
	}
	return writes, err
}

// count counts requests by verb and resource: "patch configmaps".
func count(requests []request) map[string]int {
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

func (r request) storesNothing() bool {
	switch r.ObjectRef.Resource {
	case "events", "leases", "selfsubjectaccessreviews", "subjectaccessreviews":
		return true
	}
	return strings.Contains(r.RequestURI, "dryRun=All")
}

// undeclared is a part of the names of what others create and an authoritative template has deleted.
const undeclared = "undeclared"

// rebound is a part of the names of RoleBindings that others created, and that the operator adopted and then had to replace.
const rebound = "rebound"

// checkDeletions fails if the operator deleted an object that it had not created.
func (a *auditLog) checkDeletions() error {
	requests, err := a.read()
	if err != nil {
		return err
	}
	type object struct{ group, resource, namespace, name string }
	creators := map[object]string{}
	var errs []error
	for _, r := range requests {
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
			expected := strings.Contains(about.name, undeclared) || strings.Contains(about.name, rebound) ||
				about.name == v1alpha1.QuotaName // the name is the operator's
			if r.User.Username == operatorUser && creators[about] != operatorUser && !expected {
				errs = append(errs, fmt.Errorf("the operator deleted %+v, which %q had created", about, creators[about]))
			}
			delete(creators, about)
		}
	}
	return errors.Join(errs...)
}
