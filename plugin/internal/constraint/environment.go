package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// environment is what a review takes besides the pods: the constraints, the namespace, and who may use the constraints.
type environment struct {
	// constraints are in the order in which they are tried, with their defaults.
	constraints []*v1alpha1.SecurityContextConstraints
	// namespace is that of pods that name none. If it is explicit, pods that name another are an error.
	namespace string
	explicit  bool
	requester attributes.Requester

	// reader and caller are nil for a review of files. Reader acts as the user, and caller as the impersonated one.
	reader, caller *cluster.Cluster
	// fileAnnotations are those of the namespace in a review of files.
	fileAnnotations map[string]string
}

// environment reads the cluster, or the files that stand in for it.
func (o *review) environment(ctx context.Context) (*environment, error) {
	namespace, explicit, err := o.Namespace()
	if len(o.constraints) > 0 {
		return o.environmentInFiles(namespace, explicit) // the kubeconfig may be missing or broken
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
	if err != nil {
		return nil, err
	}
	if e.requester, err = e.caller.Caller(ctx); err != nil {
		return nil, err
	}
	e.constraints, err = inOrder(constraints)
	return e, err
}

// environmentInFiles takes the user from --as and --as-group, since there is no API server that knows it.
func (o *review) environmentInFiles(namespace string, explicit bool) (*environment, error) {
	e := &environment{namespace: namespace, explicit: explicit}
	if user := o.Config.Impersonate; user != nil {
		e.requester.Name = *user
	}
	if groups := o.Config.ImpersonateGroup; groups != nil {
		e.requester.Groups = *groups
	}
	constraints, err := o.constraintsInFiles()
	if err != nil {
		return nil, err
	}
	if o.namespaceFile != "" {
		ns, err := o.namespaceInFile()
		if err != nil {
			return nil, err
		}
		if explicit && namespace != ns.GetName() {
			return nil, fmt.Errorf("--namespace is %s, and in %s is Namespace %s: leave one out", namespace,
				o.namespaceFile, ns.GetName())
		}
		e.namespace, e.explicit, e.fileAnnotations = ns.GetName(), true, ns.GetAnnotations()
	}
	e.constraints, err = inOrder(constraints)
	return e, err
}

func (o *review) namespaceInFile() (*unstructured.Unstructured, error) {
	objects, err := source.Objects(o.namespaceFile)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Namespace"
	})
	if i < 0 {
		return nil, fmt.Errorf("there is no Namespace in %s", o.namespaceFile)
	}
	return objects[i], nil
}

// constraintsInFiles reads the constraints that stand in for those of the cluster.
func (o *review) constraintsInFiles() ([]*v1alpha1.SecurityContextConstraints, error) {
	objects, err := source.Objects(o.constraints...)
	if err != nil {
		return nil, err
	}
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
			return nil, errors.New(
				"there are SecurityContextConstraints without metadata.name in the files: give them one")
		case names[name]:
			return nil, fmt.Errorf("SecurityContextConstraints %s are in the files twice: leave one out", name)
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

// inOrder returns the constraints with their defaults, in the order in which they are tried.
func inOrder(constraints []*v1alpha1.SecurityContextConstraints) ([]*v1alpha1.SecurityContextConstraints, error) {
	if len(constraints) == 0 {
		return nil, errors.New("there are no SecurityContextConstraints, without which every pod is admitted as it is")
	}
	sorted := make([]*v1alpha1.SecurityContextConstraints, len(constraints))
	for i := range constraints {
		sorted[i] = scc.Defaulted(constraints[i])
	}
	scc.Sort(sorted)
	return sorted, nil
}

// annotations returns those of a namespace.
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

// usableBy returns which subject may use a constraint for the pods of a service account, or "". The service account
// goes first, as in admission.
func (e *environment) usableBy(
	ctx context.Context, constraint *v1alpha1.SecurityContextConstraints, namespace, account string,
) (string, error) {
	service := attributes.Requester{
		Name:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
	if scc.Lists(constraint, service) {
		return scc.ServiceAccountSubject, nil
	}
	if e.reader != nil {
		if allowed, err := e.reader.AccountMayUse(ctx, constraint.Name, namespace, account); allowed || err != nil {
			return scc.ServiceAccountSubject, err
		}
	}
	if scc.Lists(constraint, e.requester) {
		return scc.UserSubject, nil
	}
	if e.caller != nil {
		if allowed, err := e.caller.MayUseConstraint(ctx, constraint.Name, namespace); allowed || err != nil {
			return scc.UserSubject, err
		}
	}
	return "", nil
}
