package namespace

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// errUnlisted is the error for a user who may not list templates, neither with nor without --as.
var errUnlisted = errors.New("the user may not list namespacetemplates")

// runPopulated shows the populated objects that exist in a namespace, for a user who may not read templates.
func (p *preview) runPopulated(ctx context.Context, name string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	ns, err := c.Namespace(ctx, name)
	switch {
	case apierrors.IsForbidden(err):
		return cli.NoAccess(name)
	case apierrors.IsNotFound(err):
		return errors.New(cli.Unlisted("namespacetemplates", "the objects of a new namespace are unknown"))
	case err != nil:
		return err
	case len(p.labels)+len(p.annotations) > 0 || p.creator != "" || p.space.value != "" || p.server:
		return errors.New(cli.Unlisted("namespacetemplates",
			"the effect of --label, --annotation, --space, --creator and --server is unknown"))
	}
	populated, err := survey.ReadPopulated(ctx, c, name)
	if err != nil {
		return err
	}
	p.Note("%s", cli.Unlisted("namespacetemplates", "the populated objects that exist are shown as they are"))
	if len(populated.Unlisted) > 0 {
		p.Note("you may not list %s, so their objects are not shown", output.FirstFew(populated.Unlisted))
	}
	p.notePopulation(ns)
	if p.output.Format == cli.FormatTable {
		return p.output.PrintTable(p.Out, populatedTable(populated))
	}
	objects, err := readObjects(ctx, c, populated)
	return errors.Join(p.printObjects(objects), err)
}

// notePopulation prints why the namespace is not populated.
func (p *preview) notePopulation(ns *corev1.Namespace) {
	shown := newNamespaceStatus(nil, ns)
	if shown.Populated != string(corev1.ConditionTrue) {
		p.Note("namespace/%s is not populated: %s", ns.Name, shown.Message)
	} else if optedOut := match.OptedOutTemplates(ns); len(optedOut) > 0 {
		p.Note("namespace/%s is opted out of %s", ns.Name, output.FirstFew(optedOut))
	}
}

func populatedTable(populated survey.Populated) output.Table {
	table := output.Table{Columns: []string{"Object", "Template", "Action", "Reason"}}
	for _, object := range populated.Objects {
		table.Rows = append(table.Rows, []string{
			render.IDOf(object).String(), object.Labels[v1alpha1.TemplateNameLabel], "unknown", "exists",
		})
	}
	return table
}

// readObjects returns the populated objects without their managedFields and without the values of Secrets, and an error
// for each object that cannot be read.
func readObjects(
	ctx context.Context, c *cluster.Cluster, populated survey.Populated,
) ([]*unstructured.Unstructured, error) {
	read, errs := cluster.EachOrError(populated.Objects,
		func(found *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
			client, err := c.Objects(ctx, found.GroupVersionKind(), found.Namespace)
			if err != nil {
				return nil, err
			}
			return client.Get(ctx, found.Name, metav1.GetOptions{})
		})
	var objects []*unstructured.Unstructured
	for i, object := range read {
		if errs[i] == nil {
			object.SetManagedFields(nil)
			maskSecret(object)
			objects = append(objects, object)
		}
	}
	errs = slices.DeleteFunc(errs, apierrors.IsNotFound) // they were deleted since they were listed
	return objects, errors.Join(errs...)
}

// maskSecret replaces the values of a Secret. The masks are not valid in an object, so no client can write them by
// mistake.
func maskSecret(object *unstructured.Unstructured) {
	if !survey.IsSecret(object) {
		return
	}
	data, _, _ := unstructured.NestedMap(object.Object, "data")
	for key := range data {
		data[key] = "***"
	}
	if len(data) > 0 {
		object.Object["data"] = data
	}
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(annotations)
}
