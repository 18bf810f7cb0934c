// Package e2e_test tests the whole product on a real node, with its image and manifests as they are released.
package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/node"
)

// Each step starts from the state that the previous ones left, like in the life of a real cluster.
func TestEndToEnd(t *testing.T) {
	marks.OnNode(t, node.Lacks(t.Context()))
	s := newSite(t)
	for _, step := range []struct {
		name string
		run  func(*site)
	}{
		{"install", (*site).install},
		{"a namespace is created with its policies", (*site).mainJob},
		{"a constraint sets the security context of a running pod", (*site).constrainedPod},
		{"exec is denied to users without permission", (*site).exec},
		{"a policyspace's quota limits a real workload", (*site).quota},
		{"drift is corrected", (*site).drift},
		{"metrics", (*site).metrics},
		{"policies in Git are followed over HTTPS and SSH", (*site).sync},
		{"a replica is killed", (*site).replicaKilled},
		{"the kubelet is restarted", (*site).kubeletRestarted},
		{"upgrade", (*site).upgrade},
		{"uninstall", (*site).uninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s.in(t)) }) {
			return
		}
	}
}

func (s *site) install() {
	s.load(first)
	s.play("Build a release", first)
	s.play("The plugin", first)
	s.play("Install", first)
	s.awaitOperator(first)
	require.Equal(s.t, "2",
		s.kubectl("get", "deployment", "nstpl-operator", "-n", "nstpl-system", "-o",
			"jsonpath={.status.readyReplicas}"))
	// The image has the digest that the manifest names.
	require.NotContains(s.t, s.kubectl("get", "events", "-n", "nstpl-system", "-o", "jsonpath={.items[*].reason}"),
		"Failed")
}

func (s *site) mainJob() {
	s.kubectl("apply", "-f", "manifests/samples/security-defaults.yaml", "-f", "manifests/samples/creator-admin.yaml",
		"-f", "manifests/samples/namespace-creator.yaml")
	s.kubectl("create", "clusterrolebinding", "alice-creates", "--clusterrole=namespace-creator", "--user=alice")
	s.kubectl("wait", "--for=condition=Accepted", "namespacetemplates", "--all", "--timeout=1m")
	require.Contains(s.t, s.kubectl("nstpl", "create", "team-a", "--as=alice"), "namespace/team-a populated\n")
	require.Equal(s.t, "yes\n", s.kubectl("auth", "can-i", "create", "deployments", "-n", "team-a", "--as=alice"))
	require.Equal(s.t,
		"networkpolicy.networking.k8s.io/allow-dns\nnetworkpolicy.networking.k8s.io/allow-same-namespace\n"+
			"networkpolicy.networking.k8s.io/default-deny\nlimitrange/defaults\nresourcequota/budget\n",
		s.kubectl("get", "networkpolicies,limitranges,resourcequotas", "-n", "team-a", "-o", "name"))
}

func (s *site) constrainedPod() {
	s.kubectl("apply", "-k", "manifests/components/security-context-constraints")
	s.kubectl("wait", `--for=jsonpath={.metadata.annotations.policy\.nstpl\.dev/scc\.uid-range}`, "namespace/team-a",
		"--timeout=1m")
	// The API server calls the webhooks for pods shortly after the first constraint is created.
	s.eventually(func() error {
		_, err := s.try("run", "root", "-n", "team-a", "--image="+node.PodImage, "--privileged", "--dry-run=server",
			"--as=alice")
		return refused(err, "privileged containers are not allowed")
	})
	s.eventually(func() error {
		out, err := s.try("run", "web", "-n", "team-a", "--image="+node.PodImage, "--dry-run=server", "--as=alice",
			"-o", `jsonpath={.metadata.annotations.policy\.nstpl\.dev/scc}`)
		if err == nil && out == "" {
			err = errors.New("no constraint was asked")
		}
		return err
	})
	s.kubectl("run", "web", "-n", "team-a", "--image="+node.PodImage, "--as=alice")
	s.kubectl("wait", "--for=condition=Ready", "pod/web", "-n", "team-a", "--timeout=1m")
	first, _, ok := strings.Cut(s.kubectl("get", "namespace", "team-a", "-o",
		`jsonpath={.metadata.annotations.policy\.nstpl\.dev/scc\.uid-range}`), "/")
	require.True(s.t, ok)
	require.Contains(s.t, s.kubectl("exec", "web", "-n", "team-a", "--as=alice", "--", "/pod", "id"), "uid="+first+" ")
}

func (s *site) exec() {
	s.kubectl("create", "serviceaccount", "builder", "-n", "team-a")
	s.kubectl("run", "root", "-n", "team-a", "--image="+node.PodImage, "--overrides",
		`{"spec": {"securityContext": {"runAsUser": 0}}}`)
	s.kubectl("wait", "--for=condition=Ready", "pod/root", "-n", "team-a", "--timeout=1m")
	require.Contains(s.t, s.kubectl("exec", "root", "-n", "team-a", "--", "/pod", "id"), "uid=0 ")
	_, err := s.try("exec", "root", "-n", "team-a", "--as=alice", "--", "/pod", "id")
	require.NoError(s.t, refused(err, "scc"))
	s.kubectl("create", "rolebinding", "alice-anyuid", "-n", "team-a", "--clusterrole=scc-anyuid", "--user=alice")
	s.eventually(func() error {
		_, err := s.try("exec", "root", "-n", "team-a", "--as=alice", "--", "/pod", "id")
		return err
	})
}

func (s *site) quota() {
	s.kubectl("apply", "-f", "manifests/samples/policyspaces.yaml")
	s.kubectl("patch", "policyspace", "payments", "--type=merge", "-p", `{"spec": {"quota": {"hard": {"pods": 3}}}}`)
	s.kubectl("nstpl", "create", "ledger", "--label", "policy.nstpl.dev/policyspace=payments")
	s.kubectl("nstpl", "create", "cards", "--label", "policy.nstpl.dev/policyspace=payments")
	s.kubectl("create", "deployment", "web", "-n", "ledger", "--image="+node.PodImage, "--replicas=2")
	s.kubectl("rollout", "status", "deployment/web", "-n", "ledger", "--timeout=1m")
	s.kubectl("create", "deployment", "web", "-n", "cards", "--image="+node.PodImage, "--replicas=4")
	s.eventually(func() error {
		return equal("1",
			s.kubectl("get", "deployment", "web", "-n", "cards", "-o", "jsonpath={.status.readyReplicas}"))
	})
	require.Equal(s.t, "pods: 3/3", s.kubectl("get", "policyspace", "payments", "-o", "jsonpath={.status.quota}"))
	s.eventually(func() error {
		return contains(s.kubectl("get", "events", "-n", "cards", "-o", "jsonpath={.items[*].message}"),
			`exceeded quota in policyspace "payments"`)
	})
	// Deleted pods release their share of the quota.
	s.kubectl("scale", "deployment", "web", "-n", "ledger", "--replicas=0")
	s.eventually(func() error {
		return equal("3",
			s.kubectl("get", "deployment", "web", "-n", "cards", "-o", "jsonpath={.status.readyReplicas}"))
	})
}

func (s *site) drift() {
	s.kubectl("delete", "networkpolicy", "default-deny", "-n", "team-a")
	s.kubectl("wait", "--for=create", "networkpolicy/default-deny", "-n", "team-a", "--timeout=30s")
	s.kubectl("patch", "resourcequota", "budget", "-n", "team-a", "--type=merge", "-p",
		`{"spec": {"hard": {"pods": "9000"}}}`)
	s.kubectl("wait", "--for=jsonpath={.spec.hard.pods}=50", "resourcequota/budget", "-n", "team-a", "--timeout=30s")
}

func (s *site) replicaKilled() {
	holder := s.kubectl("get", "lease", "nstpl-operator", "-n", "nstpl-system", "-o", "jsonpath={.spec.holderIdentity}")
	leader, _, _ := strings.Cut(holder, "_")
	s.kubectl("delete", "pod", leader, "-n", "nstpl-system", "--force", "--grace-period=0")
	require.Contains(s.t, s.kubectl("nstpl", "create", "team-b", "--as=alice", "--timeout=1m"),
		"namespace/team-b populated\n")
	s.kubectl("rollout", "status", "deployment/nstpl-operator", "-n", "nstpl-system", "--timeout=1m")
}

func (s *site) kubeletRestarted() {
	restarts := func() string {
		return s.kubectl("get", "pods", "-n", "nstpl-system", "-o",
			"jsonpath={.items[*].status.containerStatuses[0].restartCount}")
	}
	before := restarts()
	require.NoError(s.t, s.cluster.RestartKubelet(s.t.Context()))
	require.Equal(s.t, before, restarts())
	s.kubectl("nstpl", "create", "team-c", "--as=alice")
	s.kubectl("run", "web", "-n", "team-c", "--image="+node.PodImage, "--as=alice")
	s.kubectl("wait", "--for=condition=Ready", "pod/web", "-n", "team-c", "--timeout=1m")
}

// Meanwhile no request is denied, and populated objects do not change.
func (s *site) upgrade() {
	s.load(second)
	before := s.populated()
	done, failures := make(chan struct{}), make(chan []error)
	go func() {
		var errs []error
		for i := 0; ; i++ {
			select {
			case <-done:
				failures <- errs
				return
			case <-time.After(50 * time.Millisecond):
			}
			if _, err := s.try("run", fmt.Sprint("dry-", i), "-n", "team-a", "--image="+node.PodImage,
				"--dry-run=server", "--as=alice"); err != nil {
				errs = append(errs, err)
			}
			if _, err := s.try("create", "namespace", fmt.Sprint("dry-", i), "--dry-run=server",
				"--as=alice"); err != nil {
				errs = append(errs, err)
			}
		}
	}()
	s.play("Upgrade", second)
	s.awaitOperator(second)
	close(done)
	require.Empty(s.t, <-failures)
	require.Equal(s.t, before, s.populated())
	require.Contains(s.t, s.kubectl("nstpl", "create", "team-d", "--as=alice"), "namespace/team-d populated\n")
}

func (s *site) uninstall() {
	before := s.populated()
	s.play("Uninstall", second)
	require.Equal(s.t, before, s.populated())
	s.kubectl("run", "more", "-n", "team-a", "--image="+node.PodImage, "--privileged")
	s.kubectl("delete", "namespace", "team-a", "ledger", "cards", "--timeout=1m")
	s.kubectl("create", "namespace", "team-a")
}
