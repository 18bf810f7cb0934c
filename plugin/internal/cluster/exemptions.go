package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// fewNamespaces is the number of namespaces up to which exemptions are listed namespace by namespace, which needs
// fewer permissions.
const fewNamespaces = 3

// UnreadExemptionsError says that the TemplateExemptions of some namespaces cannot be read.
type UnreadExemptionsError struct {
	Err error
}

func (e UnreadExemptionsError) Error() string {
	return fmt.Sprintf("exemptions are unknown, so exempt objects are shown as if they were not exempt: %v", e.Err)
}

func (e UnreadExemptionsError) Unwrap() error { return e.Err }

// Exemptions returns the TemplateExemptions of some namespaces, and maybe of others. It returns none if the API server
// does not serve the kind. The error is an UnreadExemptionsError if some of them cannot be read, and Forbidden only if
// the user may read none of these: otherwise a later call may return more.
func (c *Cluster) Exemptions(
	ctx context.Context, namespaces []*corev1.Namespace,
) ([]*v1alpha1.TemplateExemption, error) {
	in := []string{metav1.NamespaceAll}
	if len(namespaces) <= fewNamespaces {
		in = nil
		for _, ns := range namespaces {
			in = append(in, ns.Name)
		}
	}
	listed, errs := EachOrError(in, func(namespace string) ([]*v1alpha1.TemplateExemption, error) {
		exemptions, err := List[v1alpha1.TemplateExemption](ctx, c, v1alpha1.TemplateExemptions, namespace,
			metav1.ListOptions{})
		return exemptions, client.IgnoreNotFound(err) // a cluster with an earlier version of nstpl has none
	})
	var unread error
	for _, err := range errs {
		if err != nil && (unread == nil || !apierrors.IsForbidden(err)) {
			unread = UnreadExemptionsError{err}
		}
	}
	return slices.Concat(listed...), unread
}

// ExemptionsIn returns the TemplateExemptions of a namespace, or of all namespaces for metav1.NamespaceAll, or a
// NotInstalledError.
func (c *Cluster) ExemptionsIn(ctx context.Context, namespace string) ([]*v1alpha1.TemplateExemption, error) {
	return own[v1alpha1.TemplateExemption](ctx, c, v1alpha1.TemplateExemptions, namespace)
}

// SetExemptions adds the exemptions that are in force now to an index.
func SetExemptions(index *match.Index, all []*v1alpha1.TemplateExemption) {
	byNamespace := map[string][]*v1alpha1.TemplateExemption{}
	for _, exemption := range all {
		byNamespace[exemption.Namespace] = append(byNamespace[exemption.Namespace], exemption)
	}
	for namespace, some := range byNamespace {
		active, _ := match.InForce(some, metav1.Now())
		index.SetExemptions(namespace, active)
	}
}
