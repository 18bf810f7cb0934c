package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultVersion is the Kubernetes version that runs unless another one is requested.
const DefaultVersion = "1.37.2"

// Version returns the Kubernetes version to run: $K8S_VERSION, or DefaultVersion.
func Version() string {
	return cmp.Or(strings.TrimPrefix(os.Getenv("K8S_VERSION"), "v"), DefaultVersion)
}

// Build returns a folder that contains etcd, kube-apiserver, kube-controller-manager and kubectl of a Kubernetes
// version. The first call compiles them, which takes minutes, into the user's cache folder. If several processes need
// them at the same time, one compiles and the others wait. Messages about the build are written to progress. If
// $KUBEBUILDER_ASSETS is set, it is the folder for every version.
func Build(ctx context.Context, version string, progress io.Writer) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return filepath.Abs(assets)
	}
	return build(ctx, version, controlPlane, progress)
}

// BuildNode is like Build for the programs of a node of DefaultVersion: kube-scheduler, kubelet and kube-proxy.
func BuildNode(ctx context.Context, progress io.Writer) (string, error) {
	return build(ctx, DefaultVersion, node, progress)
}

func build(ctx context.Context, version string, p program, progress io.Writer) (string, error) {
	src, err := findSource(ctx, version)
	if err != nil {
		return "", err
	}
	src.program = p
	hash, err := src.hash()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep the control plane: %w", err)
	}
	assets := filepath.Join(cache, "nstpl", p.folder,
		fmt.Sprintf("%s-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH, hash))
	if exists(assets) {
		return assets, nil
	}
	if err := os.MkdirAll(filepath.Dir(assets), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, assets+".lock", progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(assets) { // the process that held the lock has built them
		return assets, nil
	}
	if err := src.build(ctx, assets, progress); err != nil {
		return "", err
	}
	return assets, nil
}

// program is what is compiled together, and a folder of the cache.
type program struct {
	folder   string
	binaries []binary
}

// binary is a folder of the nested module with a main package, which has its name.
type binary struct {
	name string
	// links are the names of the programs that it is, if it is several.
	links []string
}

var (
	controlPlane = program{
		folder: "controlplane",
		binaries: []binary{
			{name: "controlplane", links: []string{"etcd", "kube-apiserver", "kube-controller-manager"}},
			{name: "kubectl"},
		},
	}
	node = program{
		folder:   "node",
		binaries: []binary{{name: "node", links: []string{"kube-scheduler", "kubelet", "kube-proxy"}}},
	}
)

// source is the nested module as it is built for a Kubernetes version.
type source struct {
	program
	dir     string
	version string
	modfile string // relative to dir
}

// Root returns the project's folder. The working directory must be inside of it.
func Root(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "nstpl.dev/nstpl").Output()
	if err != nil {
		return "", fmt.Errorf("this must run inside of nstpl's checkout: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

func findSource(ctx context.Context, version string) (source, error) {
	root, err := Root(ctx)
	if err != nil {
		return source{}, err
	}
	src := source{
		dir:     filepath.Join(root, "test", "cluster"),
		version: version,
		modfile: "go.mod",
	}
	if version == DefaultVersion {
		return src, nil
	}
	others, err := filepath.Glob(filepath.Join(src.dir, "go-*.mod"))
	if err != nil {
		return source{}, err
	}
	known := []string{DefaultVersion}
	for _, file := range others {
		v := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "go-"), ".mod")
		if v == version {
			src.modfile = filepath.Base(file)
			return src, nil
		}
		known = append(known, v)
	}
	return source{},
		fmt.Errorf("kubernetes %s can't be built here: choose one of %s", version, strings.Join(known, ", "))
}

func (s source) hash() (string, error) {
	sum := sha256.New()
	files := []string{s.modfile, strings.TrimSuffix(s.modfile, ".mod") + ".sum"}
	for _, b := range s.binaries {
		files = append(files, filepath.Join(b.name, "main.go"))
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), nil
}

// build compiles into a temporary folder and renames it to assets, so that assets is never incomplete.
func (s source) build(ctx context.Context, assets string, progress io.Writer) error {
	tmp := assets + ".building"
	if err := os.RemoveAll(tmp); err != nil { // left by a build that was killed
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := s.compile(ctx, tmp, progress); err != nil {
		return fmt.Errorf("compile kubernetes %s: %w", s.version, err)
	}
	for _, b := range s.binaries {
		for _, link := range b.links {
			if err := os.Symlink(b.name, filepath.Join(tmp, link)); err != nil {
				return err
			}
		}
	}
	return os.Rename(tmp, assets)
}

func (s source) compile(ctx context.Context, folder string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-modfile="+s.modfile,
		"-ldflags="+s.ldflags(), "-o", folder)
	for _, b := range s.binaries {
		cmd.Args = append(cmd.Args, "./"+b.name)
	}
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	what := "compiling kubernetes " + s.version + " (" + s.folder + "): "
	fmt.Fprintln(progress, what+"the first time this takes minutes")
	start, tick := time.Now(), time.NewTicker(15*time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintln(progress, what+time.Since(start).Round(time.Second).String())
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%w: %s", err, &complaints)
			}
			fmt.Fprintln(progress, what+"done after "+time.Since(start).Round(time.Second).String())
			return nil
		}
	}
}

// ldflags strip the binary and set its version, which a release build takes from git.
func (s source) ldflags() string {
	flags := []string{"-s", "-w"}
	major, rest, _ := strings.Cut(s.version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion=v"+s.version,
			"-X", pkg+".gitMajor="+major,
			"-X", pkg+".gitMinor="+minor,
			"-X", pkg+".gitCommit=unknown",
		)
	}
	return strings.Join(flags, " ")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lock waits until no other process holds the lock on a file. The kernel releases the lock when its holder ends.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			fmt.Fprintln(progress, "waiting for another process that compiles the control plane")
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another process that compiles the control plane: %w", context.Cause(ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}
