package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

// startSync starts nstpl-sync and a Git server, and returns the shell with what the page docs/sync.md presupposes: the
// Git server is at git.example.com, and ca.crt in the home directory has its certificate authority.
func startSync(t *testing.T, sh shell) shell {
	t.Helper()
	home, repositories := t.TempDir(), t.TempDir()
	bare := gittest.Init(t, repositories, "policies.git")
	server := gittest.ServeHTTPS(t, repositories, gittest.HTTPS{Username: "sync", Password: "secret"})
	require.NoError(t, os.WriteFile(filepath.Join(home, "ca.crt"), server.CA, 0o600))
	sh.env = append(sh.env, "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=4",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z", // so that hashes are the same
		"GIT_CONFIG_KEY_0=url."+bare.Dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+gittest.ExampleHost+"/policies.git",
		"GIT_CONFIG_KEY_1=user.name", "GIT_CONFIG_VALUE_1=Ann",
		"GIT_CONFIG_KEY_2=user.email", "GIT_CONFIG_VALUE_2=ann@example.com",
		"GIT_CONFIG_KEY_3=init.defaultBranch", "GIT_CONFIG_VALUE_3=main")
	for _, command := range []string{
		"kubectl apply -f manifests/components/sync/rbac.yaml", "kubectl create serviceaccount nstpl-sync -n nstpl-system",
	} {
		require.NoError(t, sh.run(t.Context(), command, t.Output()))
	}
	kubeconfig := filepath.Join(home, "sync.kubeconfig")
	require.NoError(t, writeKubeconfigOf(t.Context(), sh, "nstpl-sync", kubeconfig))
	sync, err := operator.StartSync(operator.Options{
		Binary: filepath.Join(sh.bin, "nstpl-sync"), Dir: home, Kubeconfig: kubeconfig,
		Env:   []string{"HTTPS_PROXY=" + proxyTo(t, strings.TrimPrefix(server.URL, "https://"))},
		Flags: []string{"--leader-elect=false", "--dir=" + t.TempDir()},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sync.Stop()) })
	require.NoError(t, sync.AwaitReady(t.Context()))
	return sh
}

// proxyTo returns the URL of a proxy that connects all clients to one address.
func proxyTo(t *testing.T, address string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer target.Close()
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		go func() { _, _ = io.Copy(target, buffered) }()
		_, _ = io.Copy(client, target)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}
