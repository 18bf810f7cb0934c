// Package bigcluster serves the lists of a cluster with thousands of namespaces, as an API server does: in chunks, as
// whole objects, as metadata or as tables. The benchmarks of the plugin use it, because a real API server would need
// minutes to store as many objects.
package bigcluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Cluster serves lists of objects.
type Cluster struct {
	// Kubeconfig is the path of a kubeconfig for the cluster.
	Kubeconfig string

	requests  atomic.Int64
	resources map[string]*served // by their paths
	discovery map[string]any
}

type served struct {
	apiVersion, kind string
	items, metadata  []json.RawMessage
	names            []string
}

// Requests returns how many requests were answered since the last call.
func (c *Cluster) Requests() int { return int(c.requests.Swap(0)) }

// New starts a cluster with so many namespaces, ten objects in each, and as many templates.
func New(tb testing.TB, number int) *Cluster {
	tb.Helper()
	c := &Cluster{resources: map[string]*served{}, discovery: discovery()}
	spaces, namespaces := spaces(number), newNamespaces(number)
	templates := templates(spaces, namespaces)
	objects, err := populated(templates, namespaces)
	require.NoError(tb, err)
	const ours, rbac = "/apis/policy.nstpl.dev/v1alpha1/", "/apis/rbac.authorization.k8s.io/v1/"
	c.add(tb, "/api/v1/namespaces", "v1", "Namespace", raw(tb, namespaces))
	c.add(tb, ours+"namespacetemplates", ours[6:len(ours)-1], "NamespaceTemplate", raw(tb, templates))
	c.add(tb, ours+"policyspaces", ours[6:len(ours)-1], "PolicySpace", raw(tb, spaces))
	c.add(tb, ours+"policyrepositories", ours[6:len(ours)-1], "PolicyRepository", nil)
	c.add(tb, "/api/v1/configmaps", "v1", "ConfigMap", objects["ConfigMap"])
	c.add(tb, "/api/v1/resourcequotas", "v1", "ResourceQuota", objects["ResourceQuota"])
	c.add(tb, rbac+"roles", rbac[6:len(rbac)-1], "Role", objects["Role"])
	c.add(tb, rbac+"rolebindings", rbac[6:len(rbac)-1], "RoleBinding", objects["RoleBinding"])
	server := httptest.NewServer(c)
	tb.Cleanup(server.Close)
	c.Kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	require.NoError(tb, os.WriteFile(c.Kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config",
		"current-context": "big", "contexts": [{"name": "big", "context": {"cluster": "big", "user": "big"}}],
		"clusters": [{"name": "big", "cluster": {"server": %q}}], "users": [{"name": "big", "user": {}}]}`, server.URL), 0o600))
	return c
}

func raw[T any](tb testing.TB, objects []T) []json.RawMessage {
	tb.Helper()
	all := make([]json.RawMessage, len(objects))
	for i := range objects {
		var err error
		all[i], err = json.Marshal(objects[i])
		require.NoError(tb, err)
	}
	return all
}

func (c *Cluster) add(tb testing.TB, path, apiVersion, kind string, items []json.RawMessage) {
	tb.Helper()
	r := &served{apiVersion: apiVersion, kind: kind, items: items}
	for _, item := range items {
		var object struct {
			Metadata json.RawMessage `json:"metadata"`
		}
		var named struct {
			Metadata struct{ Name string } `json:"metadata"`
		}
		require.NoError(tb, json.Unmarshal(item, &object))
		require.NoError(tb, json.Unmarshal(item, &named))
		r.names = append(r.names, named.Metadata.Name)
		r.metadata = append(r.metadata, fmt.Appendf(nil,
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, object.Metadata))
	}
	c.resources[path] = r
}

// ServeHTTP answers requests for lists and for discovery.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	c.requests.Add(1)
	w.Header().Set("Content-Type", "application/json")
	if r := c.resources[request.URL.Path]; r != nil {
		r.list(w, request)
		return
	}
	answer, ok := c.discovery[request.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{
			TypeMeta: typeMeta("v1", "Status"), Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: http.StatusNotFound, Message: "not found",
		}
	}
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client is gone
}

// list writes a chunk of a list. Continue tokens are the numbers of items.
func (r *served) list(w http.ResponseWriter, request *http.Request) {
	query, accept := request.URL.Query(), request.Header.Get("Accept")
	items, kind, apiVersion := r.items, r.kind+"List", r.apiVersion
	switch {
	case strings.Contains(accept, "as=Table"):
		r.table(w)
		return
	case strings.Contains(accept, "as=PartialObjectMetadataList"):
		items, kind, apiVersion = r.metadata, "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	if strings.HasPrefix(query.Get("labelSelector"), "!"+v1alpha1.TemplateNameLabel) {
		items = nil
	}
	begin, _ := strconv.Atoi(query.Get("continue")) // 0 without a token
	end, token := len(items), ""
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && begin+limit < end {
		end = begin + limit
		token = strconv.Itoa(end)
	}
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1000","continue":%q},"items":[`, kind,
		apiVersion, token)
	for i, item := range items[begin:end] {
		if i > 0 {
			_, _ = w.Write([]byte{','})
		}
		_, _ = w.Write(item)
	}
	_, _ = w.Write([]byte("]}"))
}

// table writes a table with the names.
func (r *served) table(w http.ResponseWriter) {
	fmt.Fprint(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1000"},`+
		`"columnDefinitions":[{"name":"Name","type":"string","format":"name"},{"name":"Age","type":"string"}],"rows":[`)
	for i, name := range r.names {
		if i > 0 {
			_, _ = w.Write([]byte{','})
		}
		fmt.Fprintf(w, `{"cells":[%q,"5d"],"object":null}`, name)
	}
	fmt.Fprint(w, "]}")
}

// discovery returns the answers to the requests by which clients learn the kinds of a cluster.
func discovery() map[string]any {
	groups := map[string][]metav1.APIResource{
		"v1": {
			{Name: "namespaces", Kind: "Namespace"}, {Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
			{Name: "resourcequotas", Kind: "ResourceQuota", Namespaced: true},
		},
		"rbac.authorization.k8s.io/v1": {
			{Name: "roles", Kind: "Role", Namespaced: true},
			{Name: "rolebindings", Kind: "RoleBinding", Namespaced: true},
		},
		"policy.nstpl.dev/v1alpha1": {
			{Name: "namespacetemplates", Kind: "NamespaceTemplate"}, {Name: "policyspaces", Kind: "PolicySpace"},
		},
	}
	all := metav1.APIGroupList{TypeMeta: typeMeta("v1", "APIGroupList")}
	answers := map[string]any{
		"/api": metav1.APIVersions{TypeMeta: typeMeta("v1", "APIVersions"), Versions: []string{"v1"}},
	}
	for version, resources := range groups {
		for i := range resources {
			resources[i].Verbs = metav1.Verbs{"list"}
		}
		list := metav1.APIResourceList{
			TypeMeta: typeMeta("v1", "APIResourceList"), GroupVersion: version, APIResources: resources,
		}
		group, number, found := strings.Cut(version, "/")
		if !found {
			answers["/api/"+version] = list
			continue
		}
		offered := metav1.GroupVersionForDiscovery{GroupVersion: version, Version: number}
		all.Groups = append(all.Groups, metav1.APIGroup{
			Name: group, Versions: []metav1.GroupVersionForDiscovery{offered}, PreferredVersion: offered,
		})
		answers["/apis/"+version] = list
	}
	answers["/apis"] = all
	return answers
}
