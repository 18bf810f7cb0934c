package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// environment holds the inputs of a review besides the pods: the constraints, the namespace, and who may use the
// constraints.
type environment struct {
	// constraints have their defaults, and are sorted in the order in which admission tries them.
	constraints []*v1alpha1.SecurityContextConstraints
	// namespace is the namespace of pods without a namespace. If it is explicit, a pod in another namespace is an
	// error.
	namespace string
	explicit  bool
	requester attributes.Requester
	// isIntersection reports whether both the creator and the service account of a pod must be able to use a
	// constraint.
	isIntersection bool
	// exempt are the namespaces to which constraints do not apply.
	exempt []string

	// reader and caller are nil for a review of files. Reader acts as the user of the kubeconfig, and caller as the
	// user of --as.
	reader, caller *cluster.Cluster
	// isUnlisted reports whether the user of the kubeconfig may not list constraints, and hasTried whether a note on
	// that was printed.
	isUnlisted, hasTried bool
	// fileAnnotations are the annotations of the namespace in a review of files, and rbac the roles and bindings.
	fileAnnotations map[string]string
	rbac            *fileRBAC
}

// environment reads the environment from the cluster, or from files with --constraints.
func (o *review) environment(ctx context.Context) (*environment, error) {
	namespace, explicit, err := o.Namespace()
	if len(o.constraints) > 0 {
		return o.environmentInFiles(namespace, explicit) // which needs no valid kubeconfig
	}
	if err != nil {
		return nil, err
	}
	e := &environment{namespace: namespace, explicit: explicit}
	if e.reader, err = o.ConnectAsSelf(); err != nil {
		return nil, err
	}
	if e.caller, err = o.Connect(); err != nil {
		return nil, err
	}
	constraints, err := e.reader.Constraints(ctx)
	if apierrors.IsForbidden(err) {
		e.isUnlisted = true
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	if e.requester, err = e.caller.Caller(ctx); err != nil {
		return nil, err
	}
	if err := o.readFlags(ctx, e); err != nil {
		return nil, err
	}
	e.constraints, err = sortedConstraints(constraints)
	return e, err
}

// environmentInFiles reads the environment from files. The user comes from --as and --as-group, since no API server
// authenticates one.
func (o *review) environmentInFiles(namespace string, explicit bool) (*environment, error) {
	e := &environment{namespace: namespace, explicit: explicit, isIntersection: o.match == matchIntersection,
		exempt: scc.ExemptNamespaces}
	if user := o.Config.Impersonate; user != nil {
		e.requester.Name = *user
	}
	if groups := o.Config.ImpersonateGroup; groups != nil {
		e.requester.Groups = *groups
	}
	objects, _, err := source.Objects(source.Filenames{Paths: o.constraints, Recursive: true}, o.In)
	if err != nil {
		return nil, err
	}
	constraints, err := o.constraintsAmong(objects)
	if err != nil {
		return nil, err
	}
	if o.namespaceFile != "" {
		ns, err := o.namespaceInFile()
		if err != nil {
			return nil, err
		}
		if explicit && namespace != ns.GetName() {
			return nil, fmt.Errorf("--namespace %s does not match Namespace %s in %s: leave out one of them", namespace,
				ns.GetName(), o.namespaceFile)
		}
		e.namespace, e.explicit, e.fileAnnotations = ns.GetName(), true, ns.GetAnnotations()
	}
	if e.rbac, err = newFileRBAC(objects, e.namespace); err != nil {
		return nil, err
	}
	e.constraints, err = sortedConstraints(constraints)
	return e, err
}

func (o *review) namespaceInFile() (*unstructured.Unstructured, error) {
	objects, _, err := source.Objects(source.Filenames{Paths: []string{o.namespaceFile}}, o.In)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Namespace"
	})
	if i < 0 {
		return nil, fmt.Errorf("no Namespace found in %s", o.namespaceFile)
	}
	return objects[i], nil
}

func (o *review) constraintsAmong(
	objects []*unstructured.Unstructured,
) ([]*v1alpha1.SecurityContextConstraints, error) {
	var constraints []*v1alpha1.SecurityContextConstraints
	names := map[string]bool{}
	for _, object := range objects {
		name := object.GetName()
		switch {
		case object.GetKind() != "SecurityContextConstraints":
			continue
		case object.GetAPIVersion() != v1alpha1.GroupVersion.String():
			return nil, fmt.Errorf("SecurityContextConstraints %s: apiVersion is %s: change it to %s", name,
				object.GetAPIVersion(), v1alpha1.GroupVersion)
		case name == "":
			return nil, errors.New("SecurityContextConstraints without metadata.name in the files: set a name")
		case names[name]:
			return nil, fmt.Errorf("SecurityContextConstraints %s are declared more than once in the files", name)
		}
		names[name] = true
		constraint := &v1alpha1.SecurityContextConstraints{}
		if err := o.decode(object, object.Object, constraint); err != nil {
			return nil, err
		}
		constraints = append(constraints, constraint)
	}
	return constraints, nil
}

// sortedConstraints returns the constraints with their defaults, in the order in which admission tries them.
func sortedConstraints(
	constraints []*v1alpha1.SecurityContextConstraints,
) ([]*v1alpha1.SecurityContextConstraints, error) {
	if len(constraints) == 0 {
		return nil, errors.New("no SecurityContextConstraints found: without them, every pod is admitted unchanged")
	}
	sorted := make([]*v1alpha1.SecurityContextConstraints, len(constraints))
	for i := range constraints {
		sorted[i] = scc.Defaulted(constraints[i])
	}
	scc.Sort(sorted)
	return sorted, nil
}

func (e *environment) annotations(ctx context.Context, namespace string) (map[string]string, error) {
	if e.reader == nil {
		return e.fileAnnotations, nil
	}
	ns, err := e.reader.Namespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return ns.Annotations, nil
}

// accountAnnotations returns the annotations of a service account, or none in a review of files.
func (e *environment) accountAnnotations(ctx context.Context, namespace, name string) (map[string]string, error) {
	if e.reader == nil {
		return nil, nil
	}
	return e.reader.ServiceAccountAnnotations(ctx, namespace, name)
}

// creator is the user who creates a pod. IsCaller reports whether this is the user of the command, not a controller.
type creator struct {
	attributes.Requester
	isCaller bool
}

func (e *environment) mayUse(
	ctx context.Context, constraint *v1alpha1.SecurityContextConstraints, namespace string, who creator,
) (bool, error) {
	switch {
	case scc.Lists(constraint, who.Requester):
		return true, nil
	case e.rbac != nil:
		return e.rbac.mayUse(who.Requester, constraint.Name, namespace), nil
	case who.isCaller:
		return e.caller.May(ctx, v1alpha1.VerbUse, v1alpha1.SecurityContextConstraintses, constraint.Name, namespace)
	}
	return e.reader.UserMayUseConstraint(ctx, constraint.Name, namespace, who.Requester)
}
