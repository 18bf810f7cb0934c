package diff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/utils/exec"

	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// showUnified shows the differences of a report: first the changes that several namespaces have in common, and then a
// unified diff with one example of each change. For the unified diff, it writes the live objects to one directory and
// the objects that the API server would store to another, and runs the diff program on both. It shows the other
// differences even if it returns an error for some objects.
func (d *diff) showUnified(ctx context.Context, c *cluster.Cluster, groups []*group) error {
	if len(groups) == 0 {
		return nil
	}
	for _, g := range groups {
		for _, line := range g.lines() {
			output.Line(d.Out, "%s", line)
		}
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "STORED")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	return errors.Join(d.writeFiles(ctx, c, groups, differ), d.runDiffer(differ))
}

// runDiffer runs the diff program. Differences are not an error.
func (d *diff) runDiffer(differ *kubectldiff.Differ) error {
	streams := d.IOStreams
	if os.Getenv("KUBECTL_EXTERNAL_DIFF") == "" { // another program may have colors of its own
		colored := output.NewDiffWriter(d.Out)
		defer colored.Close()
		streams.Out = colored
	}
	err := differ.Run(&kubectldiff.DiffProgram{Exec: exec.New(), IOStreams: streams})
	var exit exec.ExitError
	if errors.As(err, &exit) && exit.ExitStatus() <= exitDifferent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: install diff, or set KUBECTL_EXTERNAL_DIFF to another program", err)
	}
	return nil
}

// writeFiles writes the files of the example of each group, and prints notes about those that are not shown.
func (d *diff) writeFiles(
	ctx context.Context, c *cluster.Cluster, groups []*group, differ *kubectldiff.Differ,
) error {
	notes, errs := cluster.EachOrError(groups, func(g *group) (string, error) {
		return writeItem(ctx, c, differ, g.example())
	})
	for _, note := range notes {
		if note != "" {
			d.Note("%s", note)
		}
	}
	return errors.Join(errs...)
}

// writeItem writes the files of an object that changes. It returns a note if the user may not read the object.
func writeItem(ctx context.Context, c *cluster.Cluster, differ *kubectldiff.Differ, i *item) (note string, err error) {
	if i.Action == actionKeep {
		return "", nil
	}
	sides := i.sides
	if i.change.Declared == nil {
		if sides, err = survey.DryRun(ctx, c, i.Namespace, i.change); apierrors.IsForbidden(err) {
			return fmt.Sprintf("%s: %s is not shown: %v", i.Namespace, i.Object, err), nil
		}
	}
	if err == nil {
		err = writeSides(differ, fileName(i.change.Kind, i.Namespace, i.change.Name), sides)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", i.Namespace, i.Object, err)
	}
	return "", nil
}

// fileName returns the name of the file of an object, like "kubectl diff". It replaces path separators, so that a name
// from a template cannot lead out of the directory. It also replaces colons, which the names of RBAC objects may
// contain and which some systems do not allow in file names.
func fileName(kind schema.GroupVersionKind, namespace, name string) string {
	const maxLength = 200
	parts := []string{kind.Version, kind.Kind, namespace, name}
	if kind.Group != "" {
		parts = append([]string{kind.Group}, parts...)
	}
	file := strings.NewReplacer("/", "_", `\`, "_", ":", "_").Replace(strings.Join(parts, "."))
	if len(file) > maxLength {
		sum := sha256.Sum256([]byte(file))
		file = fmt.Sprintf("%s-%x", file[:maxLength], sum[:8])
	}
	return file
}

func writeSides(differ *kubectldiff.Differ, name string, sides survey.Sides) error {
	from, to, err := displayed(sides)
	if err != nil {
		return err
	}
	return errors.Join(writeSide(differ.From, name, from), writeSide(differ.To, name, to))
}

func writeSide(version *kubectldiff.DiffVersion, name string, object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	document, err := output.YAML(object)
	if err != nil {
		return err
	}
	file, err := version.Dir.NewFile(name)
	if err != nil {
		return err
	}
	_, err = file.Write(document)
	return errors.Join(err, file.Close())
}
