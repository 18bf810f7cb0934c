package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/test/controlplane"
)

// proxy forwards requests to an API server and records them. It acts as the administrator.
type proxy struct {
	kubeconfig, home string

	mu       sync.Mutex
	requests []string
	expire   bool
}

// newProxy starts a proxy, and warms up the cache of the kinds of the cluster.
func newProxy(t *testing.T, cluster *controlplane.Cluster) *proxy {
	t.Helper()
	config := cluster.RESTConfig()
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	p := &proxy{home: t.TempDir()}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.record(r) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,`+
				`"message":"The provided continue parameter is too old"}`)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(p.kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config",
		"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "u", "user": {}}]}`, server.URL), 0o600))
	p.run(t, "diff", "-A")
	return p
}

// record records a request. It reports whether the request continues a list that expired.
func (p *proxy) record(r *http.Request) (expired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r.Method+" "+r.URL.Path)
	return p.expire && r.URL.Query().Get("continue") != ""
}

// run runs the plugin, and returns its standard output and how many requests it sent. It accepts the exit code that
// means differences.
func (p *proxy) run(t *testing.T, args ...string) (out string, requests int) {
	t.Helper()
	p.mu.Lock()
	p.requests = nil
	p.mu.Unlock()
	command := exec.CommandContext(t.Context(), filepath.Join(binDir, "kubectl-nstpl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "HOME="+p.home)
	var stderr strings.Builder
	command.Stderr = &stderr
	data, err := command.Output()
	if command.ProcessState.ExitCode() != 1 || args[0] != "diff" {
		require.NoError(t, err, "%s", stderr.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(data), len(p.requests)
}

const scaleTemplate = `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata:
  name: scale-%d
spec:
  namespaces: {labelSelector: {matchLabels: {scale: "true"}}}
  templates:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: scale-%[1]d}, data: {a: b}}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: scale-%[1]d}, rules: []}
---
`

// createScale creates templates, and namespaces that they select.
func createScale(t *testing.T, cluster *controlplane.Cluster, templates, from, to int) {
	t.Helper()
	var all strings.Builder
	for i := range templates {
		fmt.Fprintf(&all, scaleTemplate, i)
	}
	for i := from; i < to; i++ {
		fmt.Fprintf(&all,
			"{apiVersion: v1, kind: Namespace, metadata: {name: scale-%03d, labels: {scale: \"true\"}}}\n---\n", i)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(path, []byte(all.String()), 0o600))
	kubectl(t, cluster, "apply", "--server-side", "-f", path)
}

// TestRequests counts the requests of commands about all namespaces.
func TestRequests(t *testing.T) {
	cluster := controlplane.New(t)
	install(t, cluster)
	createScale(t, cluster, 3, 0, 10)
	p := newProxy(t, cluster)
	commands := map[string]int{
		"status -A":    4, // templates, namespaces, exemptions, the operator's Lease
		"status -l a=": 3,
		"tree":         6, // policy spaces, templates, namespaces, quotas, policy repositories, the Lease
		// Templates, namespaces, exemptions and the Lease; config maps and roles, with and without the label; a dry run for each object.
		"diff -A":                     4 + 4 + 6,
		"diff -A -o json":             4 + 4 + 6,
		"attributes -A":               4, // two kinds of rules, two of bindings
		"__complete status s":         1,
		"__complete preview scale-00": 1,
	}
	count := func(t *testing.T, args ...string) map[string]int {
		t.Helper()
		counted := map[string]int{}
		for command := range commands {
			_, counted[command] = p.run(t, append(strings.Fields(command), args...)...)
		}
		return counted
	}
	count(t) // the API server begins to cache a kind when it is listed first, and has clients try again until then
	require.Equal(t, commands, count(t))
	createScale(t, cluster, 0, 10, 40)
	require.Equal(t, commands, count(t), "requests do not grow with namespaces")

	whole := map[string]string{}
	flagged := []string{"status -A -o json", "tree -o json", "diff -A -o json", "attributes -A -o json"}
	for _, command := range flagged {
		whole[command], _ = p.run(t, append(strings.Fields(command), "--chunk-size=0")...)
	}
	t.Run("lists in chunks have the same objects", func(t *testing.T) {
		for _, command := range flagged {
			out, _ := p.run(t, append(strings.Fields(command), "--chunk-size=7")...)
			require.Equal(t, whole[command], out)
		}
		out, requests := p.run(t, "status", "-l", "scale=true", "-o", "json", "--chunk-size=10")
		require.Equal(t, 1+4+2, requests, out)
	})
	t.Run("a list that expires between chunks is repeated", func(t *testing.T) {
		p.expire = true
		defer func() { p.expire = false }()
		for _, command := range flagged {
			out, _ := p.run(t, append(strings.Fields(command), "--chunk-size=7")...)
			require.Equal(t, whole[command], out)
		}
		_, requests := p.run(t, "status", "-l", "scale=true", "-o", "json", "--chunk-size=10")
		require.Equal(t, 1+3+2, requests,
			"the first chunk, the second one, which expired, all objects, exemptions, and the Lease")
	})
}
