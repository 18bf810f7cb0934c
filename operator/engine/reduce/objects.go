// Package reduce has the transforms of caches, which drop what the operator does not read and share what is the same in
// thousands of objects. Cached objects are never changed, and are never written back as a whole.
package reduce

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Namespace is a cache.TransformFunc. It drops managedFields.
func Namespace(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	ns.ManagedFields = nil
	reduceMetadata(&ns.ObjectMeta)
	for i := range ns.Status.Conditions {
		condition := &ns.Status.Conditions[i]
		condition.Type = corev1.NamespaceConditionType(Shared(string(condition.Type)))
		condition.Status = corev1.ConditionStatus(Shared(string(condition.Status)))
		condition.Reason, condition.Message = Shared(condition.Reason), Shared(condition.Message)
	}
	return ns, nil
}

// Template is a cache.TransformFunc. It drops the copy of the template that kubectl apply keeps in an annotation.
func Template(object any) (any, error) {
	decoded, ok := object.(*v1alpha1.NamespaceTemplate)
	if !ok {
		return object, nil
	}
	decoded.ManagedFields = nil
	delete(decoded.Annotations, corev1.LastAppliedConfigAnnotation)
	template := decoded.DeepCopy() // the decoder of JSON leaves room in slices
	reduceMetadata(&template.ObjectMeta)
	if selector := template.Spec.Namespaces.LabelSelector; selector != nil {
		for i := range selector.MatchExpressions {
			expression := &selector.MatchExpressions[i]
			expression.Key = Shared(expression.Key)
			expression.Operator = metav1.LabelSelectorOperator(Shared(string(expression.Operator)))
		}
		selector.MatchLabels = sharedMap(selector.MatchLabels)
	}
	spec := &template.Spec
	spec.DeletionPolicy = v1alpha1.DeletionPolicy(Shared(string(spec.DeletionPolicy)))
	spec.DriftPolicy = v1alpha1.DriftPolicy(Shared(string(spec.DriftPolicy)))
	spec.FailurePolicy = v1alpha1.FailurePolicy(Shared(string(spec.FailurePolicy)))
	for i := range template.Status.Kinds {
		kind := &template.Status.Kinds[i]
		kind.Group, kind.Kind = Shared(kind.Group), Shared(kind.Kind)
	}
	for i := range template.Status.Conditions {
		reduceCondition(&template.Status.Conditions[i])
	}
	for i := range template.Status.Revisions {
		revision := &template.Status.Revisions[i]
		revision.State = v1alpha1.RolloutState(Shared(string(revision.State)))
	}
	return template, nil
}

func reduceCondition(condition *metav1.Condition) {
	condition.Type, condition.Status = Shared(condition.Type), metav1.ConditionStatus(Shared(string(condition.Status)))
	condition.Reason, condition.Message = Shared(condition.Reason), Shared(condition.Message)
}

func reduceMetadata(object *metav1.ObjectMeta) {
	object.Name = Shared(object.Name)
	object.Labels, object.Annotations = sharedMap(object.Labels), sharedMap(object.Annotations)
	for i := range object.Finalizers {
		object.Finalizers[i] = Shared(object.Finalizers[i])
	}
}

// sharedMap returns a map with shared keys and values. Values of annotations may be long, and are then seldom equal.
func sharedMap(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	shared := make(map[string]string, len(values))
	for key, value := range values {
		if len(value) <= longestShared {
			value = Shared(value)
		}
		shared[Shared(key)] = value
	}
	return shared
}

// longestShared is the longest value of a label or an annotation that is shared.
const longestShared = 256
