package bindings

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// store takes what a reflector reads of one kind of bindings into an index.
type store struct {
	index *Index
	// everywhere says that the kind is ClusterRoleBinding.
	everywhere bool
	// synced is closed when everything was read once.
	synced chan struct{}
}

var _ cache.TransformingStore = &store{}

// Add is Update.
func (s *store) Add(object any) error { return s.Update(object) }

// Update takes in a binding.
func (s *store) Update(object any) error {
	switch b := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		s.index.set("", b.Name, b.RoleRef, b.Subjects)
	case *rbacv1.RoleBinding:
		s.index.set(b.Namespace, b.Name, b.RoleRef, b.Subjects)
	default:
		return fmt.Errorf("%T is no binding", object)
	}
	return nil
}

// Delete takes out a binding.
func (s *store) Delete(object any) error {
	b, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("%T is no binding", object)
	}
	s.index.remove(b.GetNamespace(), b.GetName())
	return nil
}

// Replace takes in all bindings of the kind.
func (s *store) Replace(objects []any, _ string) error {
	there := map[binding]bool{}
	for _, object := range objects {
		if err := s.Update(object); err != nil {
			return err
		}
		there[keyOf(object.(metav1.Object))] = true
	}
	s.index.retain(s.everywhere, there)
	select {
	case <-s.synced: // a later list
	default:
		close(s.synced)
	}
	return nil
}

// Resync does nothing.
func (s *store) Resync() error { return nil }

// Transformer takes off what is not needed, before a list is gathered.
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
