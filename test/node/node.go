// Package node adds a real node to a control plane: the scheduler, a kubelet with containerd, and kube-proxy. They run
// in their own namespaces for processes, mounts and the network, which end with the process that started them and leave
// nothing behind.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/process"
)

// Name is the name of the node.
const Name = "node"

// Cluster is a control plane with a node.
type Cluster struct {
	*controlplane.Cluster

	slot        *slot
	dir, assets string
	// inside is the process whose namespaces the node's programs run in.
	inside    int
	processes []*process.Process
	kubelet   *process.Process
	stopped   bool
}

// Start starts a control plane with a node, and returns when it can run pods. ctx limits the start and not the life of
// the cluster.
func Start(ctx context.Context, progress io.Writer) (*Cluster, error) {
	// Everything is compiled before the time for the start begins. The first time, that takes much longer than a start.
	assets, err := controlplane.BuildNode(ctx, progress)
	if err != nil {
		return nil, err
	}
	if _, err := controlplane.Build(ctx, controlplane.DefaultVersion, progress); err != nil {
		return nil, err
	}
	slot, err := acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	// The folder is not in $TMPDIR, because the paths of sockets must be short.
	dir, err := os.MkdirTemp("/tmp", "nstpl-node-")
	if err != nil {
		return nil, errors.Join(err, slot.release())
	}
	c := &Cluster{slot: slot, dir: dir, assets: assets}
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("it took longer than three minutes"))
	defer cancel()
	if err := c.start(ctx, progress); err != nil {
		return nil, errors.Join(fmt.Errorf("start a node: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, progress io.Writer) error {
	if err := c.makeNamespaces(ctx); err != nil {
		return err
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	var err error
	if c.Cluster, err = c.startControlPlane(ctx, progress); err != nil {
		return err
	}
	if err := errors.Join(c.slot.makeControlGroups(), c.writeConfiguration()); err != nil {
		return err
	}
	if err := c.run("containerd", "containerd", "--config", c.path("containerd.toml")); err != nil {
		return err
	}
	if err := c.loadPod(ctx); err != nil {
		return err
	}
	for _, name := range []string{"kube-scheduler", "kube-proxy"} {
		if err := c.run(name, filepath.Join(c.assets, name), "--config="+c.path(name+".yaml")); err != nil {
			return err
		}
	}
	if err := c.startKubelet(); err != nil {
		return err
	}
	return c.await(ctx)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// holder is the shell command of inside. It prints its process number as seen from outside, and waits. It mounts /proc
// for its namespace, and empty folders at /run, where containerd and network plugins put mounts and files, and where
// they record which addresses are used.
const holder = `
read -r pid _ </proc/self/stat
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/cni
mount -t tmpfs tmpfs /var/lib/cni
echo $pid >"$1.new" && mv "$1.new" "$1"
exec sleep infinity
`

func (c *Cluster) makeNamespaces(ctx context.Context) error {
	at := c.path("pid")
	p, err := process.Start(c.dir, "namespaces", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh",
		"-c", holder, "holder", at)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return poll(ctx, func(context.Context) error {
		content, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("no namespaces: %s", p.Tail())
		}
		c.inside, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err
	})
}

// enter returns a command line that runs another one inside. setpriv ends it together with nsenter, which stays
// outside.
func (c *Cluster) enter(args ...string) []string {
	return append([]string{
		"nsenter", "--target", strconv.Itoa(c.inside), "--net", "--mount", "--pid", "--", "setpriv", "--pdeathsig",
		"KILL", "--",
	}, args...)
}

// run starts a program inside.
func (c *Cluster) run(name string, args ...string) error {
	line := c.enter(args...)
	p, err := process.Start(c.dir, name, line[0], line[1:]...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// command runs a command inside and waits until it ends.
func (c *Cluster) command(ctx context.Context, args ...string) error {
	line := c.enter(args...)
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (c *Cluster) startKubelet() error {
	if err := c.run("kubelet", filepath.Join(c.assets, "kubelet"), "--config="+c.path("kubelet.yaml"),
		"--kubeconfig="+c.path("kubelet.kubeconfig"),
		"--root-dir="+c.path("kubelet"), "--hostname-override="+Name, "--node-ip="+c.slot.nodeAddress()); err != nil {
		return err
	}
	c.kubelet = c.processes[len(c.processes)-1]
	return nil
}

// RestartKubelet kills the kubelet, starts it again and returns when it answers. Pods continue to run meanwhile.
func (c *Cluster) RestartKubelet(ctx context.Context) error {
	if err := c.kubelet.Stop(); err != nil {
		return err
	}
	c.processes = slices.DeleteFunc(c.processes, func(p *process.Process) bool { return p == c.kubelet })
	// It ends shortly after the process that entered the namespaces for it.
	if err := poll(ctx, func(ctx context.Context) error {
		if c.listens(ctx) == nil {
			return errors.New("the kubelet does not end")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := c.startKubelet(); err != nil {
		return err
	}
	return poll(ctx, c.knowsPods)
}

// knowsPods returns nil if the kubelet knows all its pods.
func (c *Cluster) knowsPods(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + Name})
	if err != nil {
		return err
	}
	known := &corev1.PodList{}
	if err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(Name).SubResource("proxy").Suffix("pods").Do(
		ctx).Into(known); err != nil {
		return err
	}
	if len(known.Items) < len(pods.Items) {
		return fmt.Errorf("the kubelet knows %d of %d pods", len(known.Items), len(pods.Items))
	}
	return nil
}

// listens returns nil if the kubelet answers.
func (c *Cluster) listens(ctx context.Context) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.slot.nodeAddress()+":10250")
	if err != nil {
		return err
	}
	return connection.Close()
}

// await waits until the node can run pods.
func (c *Cluster) await(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%w; the end of the kubelet's log:\n%s", err, c.kubelet.Tail())
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue &&
				len(node.Spec.Taints) == 0 {
				return nil
			}
		}
		return fmt.Errorf("the node is not ready: %v, taints %v; the end of the kubelet's log:\n%s",
			node.Status.Conditions, node.Spec.Taints, c.kubelet.Tail())
	})
}

// poll calls a function repeatedly until it returns no error.
func poll(ctx context.Context, question func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = question(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	return nil
}

// Logs returns the ends of the logs of all programs.
func (c *Cluster) Logs() string {
	var all strings.Builder
	for _, p := range c.processes {
		fmt.Fprintf(&all, "=== %s\n%s\n", p.Name, p.Tail())
	}
	return all.String()
}

// Stop stops all programs and removes their files. It may be called repeatedly.
func (c *Cluster) Stop() error {
	if c.stopped { // another node may have acquired the slot
		return nil
	}
	c.stopped = true
	var errs []error
	if c.inside != 0 {
		errs = append(errs, c.slot.disconnect())
	}
	for _, p := range c.processes {
		errs = append(errs, p.Stop())
	}
	if c.Cluster != nil {
		errs = append(errs, c.Cluster.Stop())
	}
	return errors.Join(append(errs, c.slot.removeControlGroups(), os.RemoveAll(c.dir), c.slot.release())...)
}
