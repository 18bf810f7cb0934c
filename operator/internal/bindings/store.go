package bindings

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// store is a cache.Store for a reflector of one kind of bindings. It keeps an Index up to date.
type store struct {
	index *Index
	// isCluster reports whether the kind is ClusterRoleBinding.
	isCluster bool
	// synced is closed after the first list.
	synced chan struct{}
}

var _ cache.TransformingStore = &store{}

// Add implements cache.Store.
func (s *store) Add(object any) error { return s.Update(object) }

// Update implements cache.Store.
func (s *store) Update(object any) error {
	switch b := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		s.index.set("", b.Name, b.RoleRef, b.Subjects)
	case *rbacv1.RoleBinding:
		s.index.set(b.Namespace, b.Name, b.RoleRef, b.Subjects)
	default:
		return fmt.Errorf("%T is not a binding", object)
	}
	return nil
}

// Delete implements cache.Store.
func (s *store) Delete(object any) error {
	b, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("%T is not a binding", object)
	}
	s.index.remove(b.GetNamespace(), b.GetName())
	return nil
}

// Replace implements cache.Store.
func (s *store) Replace(objects []any, _ string) error {
	existing := map[binding]bool{}
	for _, object := range objects {
		if err := s.Update(object); err != nil {
			return err
		}
		existing[keyOf(object.(metav1.Object))] = true
	}
	s.index.retain(s.isCluster, existing)
	select {
	case <-s.synced: // a later list
	default:
		close(s.synced)
	}
	return nil
}

// Resync implements cache.Store. There is nothing to do.
func (s *store) Resync() error { return nil }

// Transformer implements cache.TransformingStore. It removes unused metadata before a list is collected in memory.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		switch b := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			b.ObjectMeta = reduced(&b.ObjectMeta)
		case *rbacv1.RoleBinding:
			b.ObjectMeta = reduced(&b.ObjectMeta)
		}
		return object, nil
	}
}

func reduced(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, ResourceVersion: meta.ResourceVersion}
}
