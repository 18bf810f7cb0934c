package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// serveGitCommand is the command by which the demo starts itself as a Git server.
const serveGitCommand = "serve-git"

// bareRepository returns the path of the repository policies.git of the Git server with a home directory.
func bareRepository(home string) string { return filepath.Join(home, "repositories", "policies.git") }

// withGit returns the shell with what docs/sync.md presupposes: the repository at git.example.com, an author, and a
// home directory, in which serveGit writes ca.crt.
func (s shell) withGit(home string) shell {
	s.env = append(s.env, "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=4",
		// so that hashes are the same
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z",
		"GIT_CONFIG_KEY_0=url."+bareRepository(home)+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://"+gittest.ExampleHost+"/policies.git",
		"GIT_CONFIG_KEY_1=user.name", "GIT_CONFIG_VALUE_1=Ann",
		"GIT_CONFIG_KEY_2=user.email", "GIT_CONFIG_VALUE_2=ann@example.com",
		"GIT_CONFIG_KEY_3=init.defaultBranch", "GIT_CONFIG_VALUE_3=main")
	return s
}

// serveGit serves the repository until ctx is done or the home directory is deleted. Clients reach the server by a
// proxy, because git.example.com cannot be resolved.
func serveGit(ctx context.Context, home, proxy string) error {
	server, err := gittest.StartHTTPS(ctx, filepath.Dir(bareRepository(home)),
		gittest.HTTPS{Username: "sync", Password: "secret"})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := os.WriteFile(filepath.Join(home, "ca.crt"), server.CA, 0o600); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", proxy)
	if err != nil {
		return err
	}
	connects := &http.Server{
		Handler: connectTo(strings.TrimPrefix(server.URL, "https://")), ReadHeaderTimeout: time.Minute,
	}
	defer connects.Close()
	go func() { _ = connects.Serve(listener) }() // ends with an error when it is closed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		if _, err := os.Stat(home); err != nil {
			return nil // the cluster is gone
		}
	}
}

// connectTo returns a proxy that connects all clients to one address.
func connectTo(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	})
}

// startSync makes the repository in an existing home directory and starts nstpl-sync with the rights of its
// ServiceAccount, and a Git server by a function that gets the address of its proxy. It returns when both answer.
func startSync(
	ctx context.Context, sh shell, home, log string, serve func(proxy string) error,
) (*operator.Process, error) {
	bare := bareRepository(home)
	for _, command := range []string{
		"mkdir -p " + filepath.Dir(bare), "git init --quiet --bare --initial-branch=main " + bare,
		"kubectl apply -f manifests/components/sync/rbac.yaml",
		"kubectl create serviceaccount nstpl-sync -n nstpl-system",
	} {
		if err := sh.run(ctx, command, io.Discard); err != nil {
			return nil, err
		}
	}
	cluster, err := sh.cluster()
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(home, "sync.kubeconfig")
	if err := operator.WriteKubeconfigOf(ctx, cluster, "nstpl-sync", kubeconfig); err != nil {
		return nil, err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	proxy := addresses[0]
	if err := serve(proxy); err != nil {
		return nil, err
	}
	sync, err := operator.StartSync(operator.Options{
		Binary: filepath.Join(sh.bin, "nstpl-sync"), Log: log, Kubeconfig: kubeconfig,
		Flags: []string{"--leader-elect", "--dir=" + filepath.Join(home, "commits")},
		Env:   []string{"HTTPS_PROXY=http://" + proxy}, Outlives: true,
	})
	if err != nil {
		return nil, err
	}
	if err := awaitConnection(ctx, proxy); err != nil {
		return nil, fmt.Errorf("the Git server isn't ready: %w", err)
	}
	return sync, sync.AwaitReady(ctx)
}

// awaitConnection waits until an address accepts connections.
func awaitConnection(ctx context.Context, address string) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return false, nil //nolint:nilerr // it doesn't listen yet
			}
			return true, connection.Close()
		})
}

// startGitServer starts this program as a Git server, which outlives the demo and ends when the home directory is
// deleted.
func startGitServer(home, proxy string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(home, "git-server.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	server := exec.Command(program, serveGitCommand, home, proxy)
	server.Stderr = log // not that of make, which would stay open
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return server.Start()
}
