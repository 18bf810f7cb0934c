package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// maxShortDescription is the longest short description, in bytes, that krew's index accepts.
const maxShortDescription = 50

var (
	safeName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	sha256   = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// machines are the machines, as os/arch, that krew itself is released for.
var machines = []string{
	"darwin/386", "darwin/amd64", "darwin/arm64", "linux/386", "linux/amd64", "linux/arm", "linux/arm64",
	"linux/ppc64le", "windows/386", "windows/amd64", "windows/arm64",
}

// Check returns all violations of the rules of krew and its index in a manifest with the file name NAME.yaml.
func (p *Plugin) Check(name string) []error {
	var problems []error
	addProblem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" {
		addProblem("the object is a %s of %s: it must be a Plugin of krew.googlecontainertools.github.com/v1alpha2",
			p.Kind,
			p.APIVersion)
	}
	if p.Metadata.Name != name || !safeName.MatchString(p.Metadata.Name) || strings.HasPrefix(name, "kubectl-") {
		addProblem(
			"metadata.name is %q: it must be the file name, consist of lower-case letters, digits and '-', and not begin with kubectl-", p.Metadata.Name)
	}
	if _, err := semver.Parse(strings.TrimPrefix(p.Spec.Version, "v")); err != nil ||
		!strings.HasPrefix(p.Spec.Version, "v") {
		addProblem("spec.version is %q: it must be a semantic version that begins with v", p.Spec.Version)
	}
	if short := p.Spec.ShortDescription; short == "" || len(short) > maxShortDescription ||
		strings.ContainsAny(short, "\r\n") {
		addProblem("spec.shortDescription must be a line of at most %d characters", maxShortDescription)
	}
	if p.Spec.Homepage == "" {
		addProblem("spec.homepage is missing")
	}
	if len(p.Spec.Platforms) == 0 {
		addProblem("spec.platforms is empty")
	}
	for i, platform := range p.Spec.Platforms {
		for _, problem := range platform.check() {
			addProblem("spec.platforms[%d]: %w", i, problem)
		}
	}
	for _, machine := range machines {
		if selected := p.PlatformsFor(machine); len(selected) > 1 {
			addProblem("%d platforms select %s: only one may", len(selected), machine)
		}
	}
	return problems
}

func (p *Platform) check() []error {
	var problems []error
	addProblem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !strings.HasPrefix(p.URI, "https://") {
		addProblem("uri is %q: it must begin with https://", p.URI)
	}
	if !sha256.MatchString(p.SHA256) {
		addProblem("sha256 is %q: it must be 64 hexadecimal digits, in lower case", p.SHA256)
	}
	if p.Bin == "" {
		addProblem("bin is missing")
	}
	if len(p.Files) == 0 {
		addProblem("files is empty")
	}
	for _, file := range p.Files {
		for _, path := range []string{file.From, file.To, p.Bin} {
			if path == "" || strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") {
				addProblem("%q is not a valid path in an archive", path)
			}
		}
	}
	for _, wanted := range []string{p.Bin, "LICENSE"} {
		if !slices.ContainsFunc(p.Files, func(file File) bool { return file.From == wanted }) {
			addProblem("files does not contain %q, so krew would not install it", wanted)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Selector)
	if err != nil || p.Selector == nil {
		addProblem("selector is missing or invalid")
		return problems
	}
	if len(p.Selector.MatchLabels)+len(p.Selector.MatchExpressions) == 0 {
		addProblem("selector is empty")
	}
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		if key := requirement.Key(); key != "os" && key != "arch" {
			addProblem("selector uses the label %q: only os and arch exist", key)
		}
	}
	if !slices.ContainsFunc(machines, func(machine string) bool { return selector.Matches(machineLabels(machine)) }) {
		addProblem("selector selects none of the machines that krew is released for")
	}
	return problems
}

// PlatformsFor returns the platforms that select a machine, which is given as os/arch.
func (p *Plugin) PlatformsFor(machine string) []Platform {
	var selected []Platform
	for _, platform := range p.Spec.Platforms {
		if selector, err := metav1.LabelSelectorAsSelector(platform.Selector); err == nil && platform.Selector != nil &&
			selector.Matches(machineLabels(machine)) {
			selected = append(selected, platform)
		}
	}
	return selected
}

func machineLabels(machine string) labels.Set {
	system, arch, _ := strings.Cut(machine, "/")
	return labels.Set{"os": system, "arch": arch}
}
