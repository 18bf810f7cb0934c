package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/gittest"
)

const syncImageName = "nstpl.dev/nstpl-sync"

// sync follows a repository over HTTPS and one over SSH, from a Pod, and removes the component again.
func (s *site) sync() {
	require.NoError(s.t, s.cluster.LoadImage(s.t.Context(), syncImageName,
		s.file(first, "nstpl-sync-"+first+"-oci.tar")))
	s.kubectl("apply", "-f", s.file(first, "sync.yaml"))
	s.kubectl("rollout", "status", "deployment/nstpl-sync", "-n", "nstpl-system", "--timeout=2m")

	root, key := s.t.TempDir(), gittest.NewKey(s.t, "passphrase")
	address := s.cluster.MachineAddress() + ":0"
	https := gittest.ServeHTTPS(s.t, root, gittest.HTTPS{Address: address, Username: "sync", Password: "secret"})
	s.follow(root, "git-https", https.URL, map[string]string{
		"username": "sync", "password": "secret", "ca.crt": string(https.CA),
	})
	ssh := gittest.ServeSSH(s.t, root, gittest.SSH{Address: address, Authorized: key})
	s.follow(root, "git-ssh", ssh.URL, map[string]string{
		"identity": string(key.Private), "password": "passphrase", "known_hosts": string(ssh.KnownHosts),
	})

	s.kubectl("delete", "-f", s.file(first, "sync.yaml"), "--timeout=1m")
	s.kubectl("wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=nstpl-sync", "-n", "nstpl-system",
		"--timeout=1m")
	s.kubectl("get", "policyspaces/git-https", "policyspaces/git-ssh", "namespaces/git-https-a", "namespaces/git-ssh-a")
}

// follow has the cluster follow a new repository: a commit is applied, one with a violation is not, and its revert is.
func (s *site) follow(root, tree, server string, credentials map[string]string) {
	s.t.Helper()
	repository := gittest.Init(s.t, root, tree+".git")
	files := map[string]string{
		tree + "/" + tree + "-a/namespace.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: " + tree +
			"-a}}\n",
		tree + "/viewers.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: viewers}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: victor}]\n",
	}
	valid := repository.Commit(s.t, gittest.Commit{Files: files})
	create := []string{"create", "secret", "generic", tree, "-n", "nstpl-system"}
	for name, value := range credentials {
		at := filepath.Join(s.t.TempDir(), name)
		require.NoError(s.t, os.WriteFile(at, []byte(value), 0o600))
		create = append(create, "--from-file="+at)
	}
	s.kubectl(create...)
	at := filepath.Join(s.t.TempDir(), "repository.yaml")
	require.NoError(s.t,
		os.WriteFile(at, fmt.Appendf(nil, "apiVersion: policy.nstpl.dev/v1alpha1\nkind: PolicyRepository\n"+
			"metadata: {name: %s}\nspec: {path: %s, git: {url: '%s/%s.git', secretRef: {name: %s}}}\n",
			tree, tree, server, tree, tree), 0o600))
	s.kubectl("apply", "-f", at)
	s.kubectl("wait", "--for=condition=Ready", "policyrepository/"+tree, "--timeout=1m")
	canView := func() error {
		out, err := s.try("auth", "can-i", "list", "pods", "-n", tree+"-a", "--as=victor")
		if err != nil {
			return err
		}
		return equal("yes\n", out)
	}
	s.eventually(canView)

	broken := strings.ReplaceAll(files[tree+"/"+tree+"-a/namespace.yaml"], tree+"-a", "misnamed")
	repository.Commit(s.t, gittest.Commit{Files: map[string]string{tree + "/" + tree + "-a/namespace.yaml": broken}})
	_, err := s.try("nstpl", "sync", "now", tree)
	require.ErrorContains(s.t, err, "exit status 1")
	out := s.kubectl("get", "policyrepository", tree, "-o",
		"jsonpath={.status.commits.applied} {.status.violations[0].rule}")
	require.Equal(s.t, valid+" ns-name-match", out)
	require.NoError(s.t, canView())

	files[tree+"/"+tree+"-b/namespace.yaml"] = strings.ReplaceAll(files[tree+"/"+tree+"-a/namespace.yaml"], "-a", "-b")
	reverted := repository.Commit(s.t, gittest.Commit{Files: files})
	require.Contains(s.t, s.kubectl("nstpl", "sync", "now", tree), "Synced")
	s.kubectl("wait", "--for=jsonpath={.status.commits.applied}="+reverted, "policyrepository/"+tree, "--timeout=1m")
	s.kubectl("wait", "--for=condition=policy.nstpl.dev/Populated", "namespace/"+tree+"-b", "--timeout=1m")
}
