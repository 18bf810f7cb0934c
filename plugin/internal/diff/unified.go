package diff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/utils/exec"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// showUnified shows the differences of a report. It writes the live objects to one directory and the objects that the
// API server would store to another, and runs the diff program on both. It shows the other differences even if it
// returns an error for some objects.
func (d *diff) showUnified(ctx context.Context, c *cluster.Cluster, r *report) error {
	if r.Different == 0 {
		return nil
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "STORED")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	return errors.Join(d.writeFiles(ctx, c, r, differ), d.runDiffer(differ))
}

// runDiffer runs the diff program. Differences are not an error.
func (d *diff) runDiffer(differ *kubectldiff.Differ) error {
	err := differ.Run(&kubectldiff.DiffProgram{Exec: exec.New(), IOStreams: d.IOStreams})
	var exit exec.ExitError
	if errors.As(err, &exit) && exit.ExitStatus() <= exitDifferent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: install diff, or set KUBECTL_EXTERNAL_DIFF to another program", err)
	}
	return nil
}

// writeFiles writes the files of all objects that differ, and prints notes about those that are not shown exactly.
func (d *diff) writeFiles(ctx context.Context, c *cluster.Cluster, r *report, differ *kubectldiff.Differ) error {
	type difference struct {
		namespace string
		objectReport
	}
	type result struct {
		note string
		err  error
	}
	var differences []difference
	for _, ns := range r.Namespaces {
		for _, object := range ns.Objects {
			if object.Different {
				differences = append(differences, difference{ns.Name, object})
			}
		}
	}
	done := d.Progress("sending dry runs for " + output.Count(r.Different, "difference"))
	results := cluster.Each(differences, func(o difference) result {
		note, err := writeChange(ctx, c, differ, o.namespace, o.change)
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", o.namespace, o.Object, err)
		} else if note != "" {
			note = fmt.Sprintf("%s: %s %s", o.namespace, o.Object, note)
		}
		return result{note, err}
	})
	done()
	var errs []error
	for _, r := range results {
		errs = append(errs, r.err)
		if r.note != "" {
			d.Note("%s", r.note)
		}
	}
	return errors.Join(errs...)
}

// writeChange writes the files of one object. The note is empty if the files are what the API server would store.
func writeChange(
	ctx context.Context, c *cluster.Cluster, differ *kubectldiff.Differ, namespace string, change populate.Change,
) (note string, err error) {
	sides, err := survey.DryRun(ctx, c, namespace, change)
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("is not shown: %v", err), nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case sides.Replaced:
		note = "cannot be updated in place, so it would be deleted and recreated"
	case sides.Refusal != nil:
		note = fmt.Sprintf("is an estimate, because the dry run failed: %v", sides.Refusal)
	}
	return note, writeSides(differ, fileName(change.Kind, namespace, change.Name), sides)
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
