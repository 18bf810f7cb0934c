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
	"nstpl.dev/nstpl/plugin/internal/source"
)

// sccSetting is what pods are judged by.
type sccSetting struct {
	constraints []*v1alpha1.SecurityContextConstraints
	// namespace is the one that pods are in which say none, or all of them if it is chosen.
	namespace string
	chosen    bool
	// annotations returns those of a namespace.
	annotations func(ctx context.Context, namespace string) (map[string]string, error)
	requester   attributes.Requester
	// mayUse asks about the verb use; nil says no.
	mayUse func(ctx context.Context, constraint, namespace, account string) (bool, error)
}

func (o *sccReview) setting(ctx context.Context) (*sccSetting, error) {
	namespace, chosen, err := o.Namespace()
	if err != nil && len(o.constraints) == 0 {
		return nil, err
	}
	if len(o.constraints) > 0 {
		return o.offline(namespace, chosen)
	}
	reader, err := o.ConnectAsSelf()
	if err != nil {
		return nil, err
	}
	caller, err := o.Connect()
	if err != nil {
		return nil, err
	}
	setting := &sccSetting{namespace: namespace, chosen: chosen, mayUse: func(ctx context.Context, constraint, namespace, account string) (bool, error) {
		if account != "" {
			return reader.AccountMayUse(ctx, constraint, namespace, account)
		}
		return caller.MayUseConstraint(ctx, constraint, namespace)
	}}
	if setting.constraints, err = reader.Constraints(ctx); err != nil {
		return nil, err
	}
	if setting.requester, err = caller.Caller(ctx); err != nil {
		return nil, err
	}
	setting.annotations = func(ctx context.Context, namespace string) (map[string]string, error) {
		ns, err := reader.Namespace(ctx, namespace)
		if err != nil {
			return nil, err
		}
		return ns.Annotations, nil
	}
	return setting.prepare()
}

func (o *sccReview) offline(namespace string, chosen bool) (*sccSetting, error) {
	setting := &sccSetting{namespace: namespace, chosen: chosen}
	if user := o.Config.Impersonate; user != nil {
		setting.requester.Name = *user
	}
	if groups := o.Config.ImpersonateGroup; groups != nil {
		setting.requester.Groups = *groups
	}
	var err error
	if setting.constraints, err = o.constraintsInFiles(); err != nil {
		return nil, err
	}
	var annotations map[string]string
	setting.annotations = func(context.Context, string) (map[string]string, error) { return annotations, nil }
	if o.namespaceFile != "" {
		found, err := source.Objects(o.namespaceFile)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(found, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Namespace" })
		if i < 0 {
			return nil, fmt.Errorf("there is no Namespace in %s", o.namespaceFile)
		}
		if chosen && namespace != found[i].GetName() {
			return nil, fmt.Errorf("--namespace is %s, and in %s is Namespace %s: leave one out", namespace, o.namespaceFile, found[i].GetName())
		}
		setting.namespace, setting.chosen, annotations = found[i].GetName(), true, found[i].GetAnnotations()
	}
	return setting.prepare()
}

// constraintsInFiles are in place of a cluster's.
func (o *sccReview) constraintsInFiles() ([]*v1alpha1.SecurityContextConstraints, error) {
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
			return nil, fmt.Errorf("SecurityContextConstraints %s: apiVersion is %s: change it to %s", name, object.GetAPIVersion(), v1alpha1.GroupVersion)
		case name == "":
			return nil, errors.New("there are SecurityContextConstraints without metadata.name in the files: give them one")
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

// prepare puts the constraints in the order in which they are tried.
func (s *sccSetting) prepare() (*sccSetting, error) {
	if len(s.constraints) == 0 {
		return nil, errors.New("there are no SecurityContextConstraints, without which every pod is admitted as it is")
	}
	for i := range s.constraints {
		s.constraints[i] = scc.Defaulted(s.constraints[i])
	}
	scc.Sort(s.constraints)
	return s, nil
}

// usable asks about the service account first.
func (s *sccSetting) usable(ctx context.Context, constraint *v1alpha1.SecurityContextConstraints, namespace, account string) (string, error) {
	service := attributes.Requester{
		Name:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
	switch {
	case scc.Lists(constraint, service):
		return scc.ServiceAccountSubject, nil
	case s.mayUse != nil:
		if allowed, err := s.mayUse(ctx, constraint.Name, namespace, account); allowed || err != nil {
			return scc.ServiceAccountSubject, err
		}
	}
	switch {
	case scc.Lists(constraint, s.requester):
		return scc.UserSubject, nil
	case s.mayUse != nil:
		if allowed, err := s.mayUse(ctx, constraint.Name, namespace, ""); allowed || err != nil {
			return scc.UserSubject, err
		}
	}
	return "", nil
}
