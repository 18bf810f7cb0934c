package plugin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventOf returns an Event about an object some minutes ago.
func eventOf(reason, kind, name, note string, minutes int) string {
	at := time.Now().Add(-time.Duration(minutes) * time.Minute).UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "a"},
		"reason": %q, "regarding": {"kind": %q, "name": %q, "uid": "uid-of-%[3]s"}, "note": %q,
		"deprecatedLastTimestamp": %q}`, reason, kind, name, note, at)
}

// serveWorkload selects an API server with a workload x of a kind in namespace a, and with Events, or none that may be
// read.
func serveWorkload(t *testing.T, kind string, events []string) {
	t.Helper()
	group, resource := "apps", strings.ToLower(kind)+"s"
	if strings.HasSuffix(kind, "Job") {
		group = "batch"
	}
	list := `{"kind": "EventList", "apiVersion": "events.k8s.io/v1", "items": [` + strings.Join(events, ", ") + `]}`
	if slices.Contains(events, forbidden) {
		list = forbidden
	}
	serve(t, map[string]string{
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": fmt.Sprintf(`{"kind": "APIGroupList", "groups": [{"name": %q, "versions": [
			{"groupVersion": "%[1]s/v1", "version": "v1"}]}]}`, group),
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": []}`,
		"/apis/" + group + "/v1": fmt.Sprintf(`{"kind": "APIResourceList", "groupVersion": "%s/v1", "resources": [
			{"name": %q, "kind": %q, "namespaced": true, "verbs": ["get"]}]}`, group, resource, kind),
		"/apis/" + group + "/v1/namespaces/a/" + resource + "/x": fmt.Sprintf(`{"apiVersion": "%s/v1", "kind": %q,
			"metadata": {"name": "x", "namespace": "a", "uid": "uid-of-x"}, "spec": {
				"template": {"spec": {"containers": [{"name": "c"}]}},
				"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}}`, group, kind),
		"/apis/events.k8s.io/v1/namespaces/a/events": list,
	})
}

// Of most workloads, only Events say that the API server denies their pods.
func TestDeniedPodsOfEveryWorkloadAreExplained(t *testing.T) {
	const (
		quota = `pods "x" is forbidden: exceeded quota: budget, requested: pods=1, used: pods=1, limited: pods=1`
		claim = `create Claim data-x-0 for Pod x-0 in StatefulSet x failed error: persistentvolumeclaims "data-x-0" ` +
			`is forbidden: exceeded quota: budget, requested: a=1, used: a=1, limited: a=1`
		denied = `admission webhook "pods.scc.policy.nstpl.dev" denied the request: pod a/x-0: no SecurityContextConstraints ` +
			`admit it (nstpl:constraint-denied)`
		inStatefulSet = "create Pod x-0 in StatefulSet x failed error: "
		limitRange    = `pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2`
		noPods        = ". Its pods could not be created 15m ago"
	)
	failed := func(kind, name, note string) string { return eventOf("FailedCreate", kind, name, note, 15) }
	created := func(kind, name string, minutes int) string {
		return eventOf("SuccessfulCreate", kind, name, "Created", minutes)
	}
	deniedJob := failed("Job", "x", quota)
	for name, test := range map[string]struct {
		kind   string
		events []string
		want   []string
		not    string
	}{
		"a StatefulSet": {"StatefulSet", []string{failed("StatefulSet", "x", inStatefulSet+denied)},
			[]string{noPods + ": constraint-denied: ", "Message:"}, "StatefulSet x failed"},
		"an aggregated Event": {"DaemonSet",
			[]string{failed("DaemonSet", "x", "(combined from similar events): Error creating: "+limitRange)},
			[]string{noPods, "maximum cpu usage"}, "similar events"},
		"a volume claim": {"StatefulSet", []string{failed("StatefulSet", "x", claim)}, []string{noPods + ": ", "budget"}, ""},
		"a Job":          {"Job", []string{failed("Job", "x", "Error creating: "+quota)}, []string{noPods + ": ", "budget"}, ""},
		"a DaemonSet": {"DaemonSet", []string{failed("DaemonSet", "x", "Error creating: "+limitRange)},
			[]string{noPods, "maximum cpu usage"}, ""},
		"a Job of a CronJob": {"CronJob", []string{failed("Job", "x-2912", "Error creating: "+quota)},
			[]string{noPods + ": ", "budget"}, ""},
		"the Job itself": {"CronJob", []string{failed("CronJob", "x", "Error creating job: "+denied)},
			[]string{noPods + ": constraint-denied"}, ""},
		"a Job of another CronJob":   {"CronJob", []string{failed("Job", "x-y-2912", quota)}, nil, "could not be created"},
		"another object":             {"Job", []string{failed("Job", "y", quota)}, nil, "could not be created"},
		"created since":              {"Job", []string{created("Job", "x", 12), deniedJob}, nil, "could not be created"},
		"created in the same second": {"Job", []string{created("Job", "x", 15), deniedJob}, nil, "could not be created"},
		"created before":             {"Job", []string{created("Job", "x", 19), deniedJob}, []string{noPods}, ""},
		"created in a later Job": {"CronJob", []string{failed("Job", "x-1", quota), created("Job", "x-2", 12)}, nil,
			"could not be created"},
		"only a later Job created": {"CronJob", []string{failed("Job", "x-1", quota), created("CronJob", "x", 12)},
			[]string{noPods}, ""},
		"no Events": {"Job", nil, nil, "could not be created"},
		"no right":  {"Job", []string{forbidden}, []string{"you may not read events in namespace a, so it is unknown"}, ""},
	} {
		serveWorkload(t, test.kind, test.events)
		_, printed := run(t, "why", strings.ToLower(test.kind)+"/x", "-n", "a")
		for _, want := range test.want {
			require.Contains(t, printed, want, name)
		}
		if test.not != "" {
			require.NotContains(t, printed, test.not, name)
		}
	}
}
