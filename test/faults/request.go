package main

import (
	"net/http"
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/audit"
)

// request is what the URL and method of a request contain.
type request struct {
	method, resource string
	watch, dryRun    bool
}

// parse reads the path of a request to the API server, which is /api/v1/... or /apis/GROUP/VERSION/...
func parse(r *http.Request) request {
	query := r.URL.Query()
	parsed := request{method: r.Method, watch: query.Get("watch") == "true", dryRun: query.Get("dryRun") != ""}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return parsed // discovery, health
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	parsed.resource = parts[0]
	return parsed
}

// isWrite reports whether the request changes stored objects.
func (r request) isWrite() bool {
	changes := r.method == http.MethodPost || r.method == http.MethodPut || r.method == http.MethodPatch ||
		r.method == http.MethodDelete
	return changes && r.resource != "" && !r.dryRun && !slices.Contains(audit.Stateless, r.resource)
}

// isLeaseWrite reports whether the request acquires, renews or releases a leader's lease.
func (r request) isLeaseWrite() bool {
	return r.resource == "leases" && r.method != http.MethodGet && !r.dryRun
}
