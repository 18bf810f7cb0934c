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
	ResponseStatus struct{ Code int }
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

// writes counts what the operator asked for in the namespaces that in accepts, by verb and resource: "patch
// configmaps". Events are left out, and what stores nothing.
func (a *auditLog) writes(in func(namespace string) bool) (map[string]int, error) {
	requests, err := a.read()
	counts := map[string]int{}
	for _, r := range requests {
		if r.Stage != "RequestReceived" || r.User.Username != operatorUser || !in(r.ObjectRef.Namespace) ||
			r.ObjectRef.Resource == "events" || r.ObjectRef.Resource == "selfsubjectaccessreviews" ||
			strings.Contains(r.RequestURI, "dryRun=All") {
			continue
		}
		what := r.Verb + " " + r.ObjectRef.Resource
		if r.ObjectRef.Subresource != "" {
			what += "/" + r.ObjectRef.Subresource
		}
		counts[what]++
	}
	return counts, err
}

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
		if r.Stage != "ResponseComplete" || r.ObjectRef.Subresource != "" || strings.Contains(r.RequestURI, "dryRun=All") {
			continue
		}
		about := object{r.ObjectRef.APIGroup, r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name}
		switch {
		case r.ResponseStatus.Code == 201:
			creators[about] = r.User.Username
		case r.Verb == "delete" && r.ResponseStatus.Code < 300 && r.User.Username == operatorUser && creators[about] != operatorUser:
			errs = append(errs, fmt.Errorf("the operator deleted %+v, which %q had created", about, creators[about]))
		}
	}
	return errors.Join(errs...)
}
