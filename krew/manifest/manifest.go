// Package manifest holds a krew plugin manifest against the rules that krew and its index publish.
package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Plugin is a krew.googlecontainertools.github.com/v1alpha2 Plugin.
type Plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec Spec `json:"spec"`
}

// Spec is what a manifest says of a plugin.
type Spec struct {
	Version          string     `json:"version"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Homepage         string     `json:"homepage"`
	Platforms        []Platform `json:"platforms"`
}

// Platform is an archive, and the machines that it is for.
type Platform struct {
	URI      string                `json:"uri"`
	SHA256   string                `json:"sha256"`
	Selector *metav1.LabelSelector `json:"selector"`
	Files    []File                `json:"files"`
	Bin      string                `json:"bin"`
}

// File is what is installed of an archive.
type File struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// maxShort is how many characters a short description may have in krew's index.
const maxShort = 50

var (
	safeName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	sum      = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// Machines are those that krew itself is released for.
var Machines = []string{
	"darwin/386", "darwin/amd64", "darwin/arm64", "linux/386", "linux/amd64", "linux/arm", "linux/arm64",
	"linux/ppc64le", "windows/386", "windows/amd64", "windows/arm64",
}

// Parse reads a manifest. A field that krew does not know is an error, as it is for krew.
func Parse(data []byte) (*Plugin, error) {
	plugin := &Plugin{}
	if err := yaml.UnmarshalStrict(data, plugin); err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return plugin, nil
}

// Check returns all that krew would find wrong with a manifest that is called name.yaml.
func (p *Plugin) Check(name string) []error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" {
		complain("it is a %s of %s: it must be a Plugin of krew.googlecontainertools.github.com/v1alpha2", p.Kind,
			p.APIVersion)
	}
	if p.Metadata.Name != name || !safeName.MatchString(p.Metadata.Name) || strings.HasPrefix(name, "kubectl-") {
		complain(
			"metadata.name is %q: it must be that of the file, lower-case letters, digits and '-', and not begin with kubectl-", p.Metadata.Name)
	}
	if _, err := semver.Parse(strings.TrimPrefix(p.Spec.Version, "v")); err != nil ||
		!strings.HasPrefix(p.Spec.Version, "v") {
		complain("spec.version is %q: it must be a semantic version that begins with v", p.Spec.Version)
	}
	if short := p.Spec.ShortDescription; short == "" || len(short) > maxShort || strings.ContainsAny(short, "\r\n") {
		complain("spec.shortDescription must be a line of at most %d characters", maxShort)
	}
	if p.Spec.Homepage == "" {
		complain("spec.homepage is missing")
	}
	if len(p.Spec.Platforms) == 0 {
		complain("spec.platforms is empty")
	}
	for i, platform := range p.Spec.Platforms {
		for _, problem := range platform.check() {
			complain("spec.platforms[%d]: %w", i, problem)
		}
	}
	for _, machine := range Machines {
		if chosen := p.For(machine); len(chosen) > 1 {
			complain("%d platforms are for %s", len(chosen), machine)
		}
	}
	return problems
}

func (p *Platform) check() []error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !strings.HasPrefix(p.URI, "https://") {
		complain("uri is %q: it must begin with https://", p.URI)
	}
	if !sum.MatchString(p.SHA256) {
		complain("sha256 is %q: it must be 64 hexadecimal digits, in lower case", p.SHA256)
	}
	if p.Bin == "" {
		complain("bin is missing")
	}
	if len(p.Files) == 0 {
		complain("files is empty")
	}
	for _, file := range p.Files {
		for _, path := range []string{file.From, file.To, p.Bin} {
			if path == "" || strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") {
				complain("%q is no path in an archive", path)
			}
		}
	}
	for _, wanted := range []string{p.Bin, "LICENSE"} {
		if !slices.ContainsFunc(p.Files, func(file File) bool { return file.From == wanted }) {
			complain("files lacks %q, which is not installed without", wanted)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Selector)
	if err != nil || p.Selector == nil {
		complain("selector can't be read")
		return problems
	}
	if len(p.Selector.MatchLabels)+len(p.Selector.MatchExpressions) == 0 {
		complain("selector is empty")
	}
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		if key := requirement.Key(); key != "os" && key != "arch" {
			complain("selector goes by %q: it can go by os and arch", key)
		}
	}
	if !slices.ContainsFunc(Machines, func(machine string) bool { return selector.Matches(machineLabels(machine)) }) {
		complain("selector is for no machine")
	}
	return problems
}

// For returns the platforms that are for a machine, as os/arch.
func (p *Plugin) For(machine string) []Platform {
	var chosen []Platform
	for _, platform := range p.Spec.Platforms {
		if selector, err := metav1.LabelSelectorAsSelector(platform.Selector); err == nil && platform.Selector != nil &&
			selector.Matches(machineLabels(machine)) {
			chosen = append(chosen, platform)
		}
	}
	return chosen
}

func machineLabels(machine string) labels.Set {
	system, arch, _ := strings.Cut(machine, "/")
	return labels.Set{"os": system, "arch": arch}
}
