package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"nstpl.dev/nstpl/krew/release/image"
)

// PodImage is an image that a node has from the start. Its only file is a program that waits until it is ended;
// /pod id says who runs it. It must not be pulled.
const PodImage = "nstpl.test/pod:v1.0.0"

// loadPod builds PodImage.
func (c *Cluster) loadPod(ctx context.Context) error {
	binary := c.path("pod")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "nstpl.dev/nstpl/test/node/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program of pods: %w: %s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	layout := c.path("pod-image")
	of := image.Release{Program: "pod", Version: "v1.0.0", Name: "nstpl.test/pod", Created: time.Unix(0, 0)}
	if _, err := of.Write(layout, []image.Platform{{Arch: runtime.GOARCH, Binary: content}}); err != nil {
		return err
	}
	packed, err := image.Pack(layout, of.Created)
	if err != nil {
		return err
	}
	at := c.path("pod-image.tar")
	if err := os.WriteFile(at, packed, 0o600); err != nil {
		return err
	}
	return c.LoadImage(ctx, of.Name, at)
}

// LoadImage loads the image of an OCI layout in a .tar file into the node, by its tag and by its digest.
func (c *Cluster) LoadImage(ctx context.Context, name, file string) error {
	ctr := func(args ...string) error {
		return c.command(ctx,
			append([]string{"ctr", "--address", c.path("containerd.sock"), "--namespace", "k8s.io"}, args...)...)
	}
	if err := poll(ctx, func(context.Context) error { return ctr("version") }); err != nil {
		return err
	}
	return ctr("images", "import", "--digests", "--base-name", name, file)
}
