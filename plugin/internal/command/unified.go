package command

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/utils/exec"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// unified shows the differences with the program that kubectl diff would run, on two folders: objects as they are and as
// the operator would store them.
func (d *diff) unified(ctx context.Context, c *cluster.Cluster, r *report) error {
	if r.Different == 0 {
		return nil
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "STORED")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	if err := d.fill(ctx, c, r, differ); err != nil {
		return err
	}
	program := &kubectldiff.DiffProgram{Exec: exec.New(), IOStreams: d.IOStreams}
	err = differ.Run(program)
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
	var differences []difference
	for _, ns := range r.Namespaces {
		for _, object := range ns.Objects {
			if object.Different {
				differences = append(differences, difference{ns.Name, object})
			}
		}
	}
	type answer struct {
		note string
		err  error
	}
	done := d.progress("trying out " + count(r.Different, "difference"))
	answers := cluster.Each(differences, func(o difference) answer {
		sides, err := survey.See(ctx, c, o.namespace, o.change)
		if err == nil {
			err = writeSides(differ, fileName(o.change.Kind, o.namespace, o.change.Name), sides)
		}
		if err != nil {
			return answer{err: fmt.Errorf("%s: %s: %w", o.namespace, o.Object, err)}
		}
		switch {
		case sides.Replaced:
			return answer{note: fmt.Sprintf("%s: %s can't be changed in place: it is deleted and created anew", o.namespace, o.Object)}
		case sides.Refusal != nil:
			return answer{note: fmt.Sprintf("%s: %s is estimated: %v", o.namespace, o.Object, sides.Refusal)}
		}
		return answer{}
	})
	done()
	var errs []error
	for _, a := range answers {
		errs = append(errs, a.err)
		if a.note != "" {
			d.note("%s", a.note)
		}
	}
	return errors.Join(errs...)
}

// fileName names an object's file as kubectl diff does.
func fileName(kind schema.GroupVersionKind, namespace, name string) string {
	parts := []string{kind.Version, kind.Kind, namespace, name}
	if kind.Group != "" {
		parts = append([]string{kind.Group}, parts...)
	}
	// What no file system takes: names of RBAC objects may hold colons.
	return strings.ReplaceAll(strings.Join(parts, "."), ":", "_")
}

func writeSides(differ *kubectldiff.Differ, name string, sides survey.Sides) error {
	live, stored := sides.Live, sides.Stored
	tidyLive, tidyStored := tidy(live, v1alpha1.HashAnnotation), tidy(stored, v1alpha1.HashAnnotation)
	if reflect.DeepEqual(tidyLive, tidyStored) {
		tidyLive, tidyStored = tidy(live), tidy(stored)
	}
	from, to, err := mask(tidyLive, tidyStored)
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
			side.SetAnnotations(union(side.GetAnnotations(), map[string]string{corev1.LastAppliedConfigAnnotation: "***"}))
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
