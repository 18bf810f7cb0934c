package diff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/utils/exec"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// unified shows the differences with the program that kubectl diff would run, on two folders: objects as they are and as
// the operator would store them. What can't be shown is an error, after the rest was shown.
func (d *diff) unified(ctx context.Context, c *cluster.Cluster, r *report) error {
	if r.Different == 0 {
		return nil
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "STORED")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	return errors.Join(d.fill(ctx, c, r, differ), d.runDiffer(differ))
}

// runDiffer compares the two folders. That they differ is no error.
func (d *diff) runDiffer(differ *kubectldiff.Differ) error {
	err := differ.Run(&kubectldiff.DiffProgram{Exec: exec.New(), IOStreams: d.IOStreams})
	var exit exec.ExitError
	if errors.As(err, &exit) && exit.ExitStatus() <= exitDifferent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: install diff, or let KUBECTL_EXTERNAL_DIFF name another program", err)
	}
	return nil
}

// fill writes the files to compare.
func (d *diff) fill(ctx context.Context, c *cluster.Cluster, r *report, differ *kubectldiff.Differ) error {
	type difference struct {
		namespace string
		objectReport
	}
	type answer struct {
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
	done := d.Progress("trying out " + output.Count(r.Different, "difference"))
	answers := cluster.Each(differences, func(o difference) answer {
		note, err := see(ctx, c, differ, o.namespace, o.change)
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", o.namespace, o.Object, err)
		} else if note != "" {
			note = fmt.Sprintf("%s: %s %s", o.namespace, o.Object, note)
		}
		return answer{note, err}
	})
	done()
	var errs []error
	for _, a := range answers {
		errs = append(errs, a.err)
		if a.note != "" {
			d.Note("%s", a.note)
		}
	}
	return errors.Join(errs...)
}

// see writes the files of one object, and says what is special about them.
func see(ctx context.Context, c *cluster.Cluster, differ *kubectldiff.Differ, namespace string, change populate.Change) (note string, err error) {
	sides, err := survey.See(ctx, c, namespace, change)
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("is not shown: %v", err), nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case sides.Replaced:
		note = "can't be changed in place: it is deleted and created anew"
	case sides.Refusal != nil:
		note = fmt.Sprintf("is estimated: %v", sides.Refusal)
	}
	return note, writeSides(differ, fileName(change.Kind, namespace, change.Name), sides)
}

// fileName names an object's file as kubectl diff does, but for what is no part of a file's name everywhere: colons, which
// names of RBAC objects may hold, and what a template may try.
func fileName(kind schema.GroupVersionKind, namespace, name string) string {
	const most = 200
	parts := []string{kind.Version, kind.Kind, namespace, name}
	if kind.Group != "" {
		parts = append([]string{kind.Group}, parts...)
	}
	file := strings.NewReplacer("/", "_", `\`, "_", ":", "_").Replace(strings.Join(parts, "."))
	if len(file) > most {
		sum := sha256.Sum256([]byte(file))
		file = fmt.Sprintf("%s-%x", file[:most], sum[:8])
	}
	return file
}

func writeSides(differ *kubectldiff.Differ, name string, sides survey.Sides) error {
	books := []string{v1alpha1.HashAnnotation, v1alpha1.UnownedAnnotation}
	live, stored := tidy(sides.Live, books...), tidy(sides.Stored, books...)
	if reflect.DeepEqual(live, stored) {
		// The operator's books are all that differs.
		live, stored = tidy(sides.Live), tidy(sides.Stored)
	}
	from, to, err := mask(live, stored)
	if err != nil {
		return err
	}
	return errors.Join(writeSide(differ.From, name, from), writeSide(differ.To, name, to))
}

// tidy returns an object without the books of the API server and without some annotations.
func tidy(object *unstructured.Unstructured, annotations ...string) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	tidy := object.DeepCopy()
	for _, field := range []string{"managedFields", "generation", "resourceVersion", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(tidy.Object, "metadata", field)
	}
	for _, annotation := range annotations {
		unstructured.RemoveNestedField(tidy.Object, "metadata", "annotations", annotation)
	}
	if len(tidy.GetAnnotations()) == 0 {
		tidy.SetAnnotations(nil)
	}
	return tidy
}

// mask hides the values of Secrets, also in the annotation that kubectl apply leaves.
func mask(live, stored *unstructured.Unstructured) (from, to *unstructured.Unstructured, err error) {
	if !isSecret(live) && !isSecret(stored) {
		return live, stored, nil
	}
	masker, err := kubectldiff.NewMasker(object(live), object(stored))
	if err != nil {
		return nil, nil, err
	}
	from, _ = masker.From().(*unstructured.Unstructured)
	to, _ = masker.To().(*unstructured.Unstructured)
	for _, side := range []*unstructured.Unstructured{from, to} {
		if side == nil {
			continue
		}
		unstructured.RemoveNestedField(side.Object, "stringData")
		if _, ok := side.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; ok {
			side.SetAnnotations(labels.Merge(side.GetAnnotations(), map[string]string{corev1.LastAppliedConfigAnnotation: "***"}))
		}
	}
	return from, to, nil
}

func isSecret(object *unstructured.Unstructured) bool {
	return object != nil && object.GroupVersionKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
}

// object keeps a nil pointer from becoming an interface that is not nil.
func object(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
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
