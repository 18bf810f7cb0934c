package vet

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	engineschema "nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checker checks the objects in files.
type checker struct {
	*result
	schemas *engineschema.Catalog
	// cluster is nil without --server.
	cluster *cluster.Cluster
	// checked are the objects that were checked, and related those that are checked together.
	checked map[identity]source.Object
	related related
	brought brought
}

// identity is what only one object of a cluster has.
type identity struct {
	schema.GroupKind
	namespace, name string
}

func (r *result) checkFiles(
	ctx context.Context, c *cluster.Cluster, files source.Files, schemas []string, kubernetes string,
) (err error) {
	for _, problem := range files.Problems {
		r.Violations = append(r.Violations, finding{
			Rule: ruleParse, Path: problem.File, Line: problem.Line, Message: problem.Message, Remedy: problem.Remedy,
		})
	}
	checker := &checker{
		result: r, cluster: c, checked: map[identity]source.Object{}, brought: newBrought(files.Objects),
	}
	if checker.schemas, err = readSchemas(schemas, files.Objects); err != nil {
		return err
	}
	checker.schemas.KubernetesVersion = kubernetes
	for _, object := range files.Objects {
		if err := checker.check(ctx, object); err != nil {
			return err
		}
	}
	checker.checkRelated()
	return nil
}

// check checks an object. It returns an error only if the API server could not check it.
func (c *checker) check(ctx context.Context, object source.Object) error {
	before := len(c.Violations)
	kind := object.GroupVersionKind()
	isOurs := kind.Group == v1alpha1.GroupVersion.Group
	switch {
	case object.Kind == "":
		c.skip(object, "", "it has neither apiVersion nor kind, so it is not a Kubernetes object")
		return nil
	case kind.Group == "kustomize.config.k8s.io":
		c.skip(object, "", "it is for kustomize, not for a cluster")
		return nil
	}
	isNew := c.checkIdentity(object)
	switch {
	case isDefinition(object):
		c.checkDefinition(object)
		return nil
	case isOurs && kind.Version != v1alpha1.GroupVersion.Version:
		c.violate(object, ruleSchema, "apiVersion", "is "+object.APIVersion,
			"change it to "+v1alpha1.GroupVersion.String())
		return nil
	case isOurs && !c.schemas.Knows(kind):
		c.violate(object, ruleSchema, "kind", fmt.Sprintf("%s does not exist in %s", kind.Kind, object.APIVersion),
			"correct the kind")
		return nil
	case c.schemas.Knows(kind):
		c.checkSchema(object)
		c.checkMetadata(object)
	case c.cluster == nil:
		c.skip(object, "", noSchema(kind))
		return nil
	}
	if isNew {
		c.checkKind(ctx, object)
	}
	if c.cluster == nil || len(c.Violations) > before || !isOurs && c.schemas.Knows(kind) {
		return nil
	}
	return c.dryRun(ctx, object)
}

// checkIdentity reports an object without a name, and an object of nstpl that the files have already declared. It
// returns whether the object is new. Objects of other kinds may be declared once for each of several clusters.
func (c *checker) checkIdentity(object source.Object) (isNew bool) {
	switch {
	case object.Name == "" && !object.Lines.Has("metadata", "generateName"):
		c.violate(object, ruleSchema, "metadata.name", "is missing", "add it")
		return true
	case object.Name == "" || object.GroupVersionKind().Group != v1alpha1.GroupVersion.Group:
		return true
	}
	id := identity{object.GroupVersionKind().GroupKind(), object.Namespace, object.Name}
	if first, twice := c.checked[id]; twice {
		c.violate(object, ruleDuplicate, "", "it is already declared in "+
			output.Position(first.File, first.Lines.Of()), "rename or remove one of the two")
		return false
	}
	c.checked[id] = object
	return true
}

// checkSchema reports what the schema of an object's kind does not allow.
func (c *checker) checkSchema(object source.Object) {
	fields := map[string]any{}
	if err := utiljson.Unmarshal(object.Data, &fields); err != nil {
		c.violate(object, ruleParse, "", "it is not an object", "add apiVersion, kind and metadata")
		return
	}
	for _, problem := range c.schemas.Check(fields) {
		if problem.Unchecked {
			c.skip(object, problem.Path, problem.Message)
			continue
		}
		c.violate(object, ruleSchema, problem.Path, problem.Message, problem.Remedy)
	}
}

// noSchema returns why objects of a kind are not checked.
func noSchema(kind schema.GroupVersionKind) string {
	if render.BuiltIn(kind.Group) {
		return fmt.Sprintf("kind %s is not known in %s: check its spelling, or use --server", kind.Kind,
			kind.GroupVersion())
	}
	return fmt.Sprintf(
		"no schema for %s %s: add its CustomResourceDefinition with --schema, or use --server",
		kind.GroupVersion(), kind.Kind)
}

func (c *checker) violate(object source.Object, rule, field, message, remedy string) {
	c.Violations = append(c.Violations, at(object, rule, field, message, remedy))
}

func (c *checker) warn(object source.Object, field, message string) {
	c.Warnings = append(c.Warnings, at(object, "", field, message, ""))
}

func (c *checker) skip(object source.Object, field, message string) {
	c.Skipped = append(c.Skipped, at(object, "", field, message, ""))
}

// at returns a finding about a field of an object, with the line of the field.
func at(object source.Object, rule, field, message, remedy string) finding {
	return finding{
		Rule: rule, Path: object.File, Line: object.Lines.Of(manifest.SplitField(field)...),
		Object: nameOf(object), Ref: refTo(object), Field: field, Message: plain(message), Remedy: plain(remedy),
		begins: object.Lines.Of(),
	}
}

// refTo returns the reference to an object. It is empty if the object has no kind.
func refTo(object source.Object) output.ObjectRef {
	kind := object.GroupVersionKind()
	if kind.Kind == "" {
		return output.ObjectRef{}
	}
	return output.NewObjectRef(kind, object.Namespace, object.Name)
}

// nameOf returns the name of an object in kubectl's notation, without nstpl's own group, or "" if it has no kind.
func nameOf(object source.Object) string {
	kind := object.GroupVersionKind().GroupKind()
	switch {
	case kind.Kind == "":
		return ""
	case kind.Group == v1alpha1.GroupVersion.Group:
		kind.Group = ""
	}
	return strings.TrimSuffix(output.Object(kind, object.Name), "/")
}
