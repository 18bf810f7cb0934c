package node

import (
	"context"
	"embed"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"nstpl.dev/nstpl/test/controlplane"
)

// startControlPlane starts a control plane that a node can join. Its API server calls webhooks at the addresses of
// their pods, because kube-proxy, which resolves the addresses of Services, runs on the node only.
func (c *Cluster) startControlPlane(ctx context.Context, progress io.Writer) (*controlplane.Cluster, error) {
	return controlplane.Start(ctx, controlplane.Options{
		Version: controlplane.DefaultVersion,
		Dir:     c.path("controlplane"),
		Address: c.slot.machineAddress(),
		APIServerArgs: []string{
			"--authorization-mode=Node",
			"--endpoint-reconciler-type=lease",
			"--enable-aggregator-routing=true",
			"--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=apiserver-kubelet-client.crt",
			"--kubelet-client-key=apiserver-kubelet-client.key",
		},
		ControllerManagerArgs: []string{"--controllers=" + strings.Join([]string{
			"daemonset-controller",
			"disruption-controller",
			"endpointslice-controller",
			"node-lifecycle-controller",
			"pod-garbage-collector-controller",
			"taint-eviction-controller",
		}, ",")},
		Progress: progress,
	})
}

//go:embed configuration
var configuration embed.FS

// values are the values that differ between nodes.
type values struct{ Dir, Authority, Node, NodeAddress, PodSubnet, Plugins, Pod, ControlGroup string }

// writeConfiguration writes the configuration files and kubeconfigs of the programs.
func (c *Cluster) writeConfiguration() error {
	all, err := template.ParseFS(configuration, "configuration/*")
	if err != nil {
		return err
	}
	of := values{
		Dir: c.dir, Authority: filepath.Join(c.Cluster.Dir, "ca.crt"), Node: Name, NodeAddress: c.slot.nodeAddress(),
		PodSubnet: c.slot.podSubnet(), Plugins: plugins, Pod: PodImage, ControlGroup: c.slot.name(),
	}
	if err := os.Mkdir(c.path("cni"), 0o755); err != nil {
		return err
	}
	for _, one := range all.Templates() {
		at := c.path(one.Name())
		if filepath.Ext(at) == ".conflist" {
			at = filepath.Join(c.path("cni"), one.Name())
		}
		file, err := os.Create(at)
		if err != nil {
			return err
		}
		if err := errors.Join(one.Execute(file, of), file.Close()); err != nil {
			return err
		}
	}
	return errors.Join(
		c.WriteKubeconfig(c.path("kubelet.kubeconfig"), "system:node:"+Name, "system:nodes"),
		c.WriteKubeconfig(c.path("kube-proxy.kubeconfig"), "system:kube-proxy"),
		c.WriteKubeconfig(c.path("kube-scheduler.kubeconfig"), "system:kube-scheduler"),
	)
}
