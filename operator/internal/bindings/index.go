// Package bindings knows who holds which role, from a watch of RBAC's bindings that keeps no objects.
package bindings

import (
	"sync"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// Index answers who holds a role by a look-up. Names are shared, since tens of thousands of bindings have few.
type Index struct {
	mu sync.RWMutex
	// bindings are what was last seen of each.
	bindings map[binding][]holding
	// holdings count the bindings by which somebody holds a role.
	holdings map[holding]int
}

// binding is a RoleBinding, or a ClusterRoleBinding, which has no namespace.
type binding struct {
	namespace unique.Handle[string]
	name      string
}

// holding is that somebody holds a role in a namespace, or everywhere.
type holding struct {
	namespace unique.Handle[string]
	role      unique.Handle[role]
	subject   unique.Handle[attributes.Subject]
}

func keyOf(b metav1.Object) binding {
	return binding{unique.Make(b.GetNamespace()), b.GetName()}
}

type role struct{ kind, name string }

// NewIndex returns an index without bindings.
func NewIndex() *Index {
	return &Index{bindings: map[binding][]holding{}, holdings: map[holding]int{}}
}

// Holds tells whether somebody holds a role in a namespace: by a ClusterRoleBinding, or by a RoleBinding there.
func (i *Index) Holds(who attributes.Requester, reference v1alpha1.RoleReference, namespace string) bool {
	held := unique.Make(role{reference.Kind, reference.Name})
	scopes := []unique.Handle[string]{unique.Make("")}
	if namespace != "" {
		scopes = append(scopes, unique.Make(namespace))
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, scope := range scopes {
		if i.holdings[holding{scope, held, unique.Make(attributes.Subject{Name: who.Name})}] > 0 {
			return true
		}
		for _, group := range who.Groups {
			if i.holdings[holding{scope, held, unique.Make(attributes.Subject{Group: true, Name: group})}] > 0 {
				return true
			}
		}
	}
	return false
}

func (i *Index) set(namespace, name string, reference rbacv1.RoleRef, subjects []rbacv1.Subject) {
	key := binding{unique.Make(namespace), name}
	held := unique.Make(role{reference.Kind, reference.Name})
	holdings := make([]holding, 0, len(subjects))
	for _, subject := range subjects {
		if who, ok := attributes.SubjectOf(subject, namespace); ok {
			holdings = append(holdings, holding{key.namespace, held, unique.Make(who)})
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(key)
	i.bindings[key] = holdings
	for _, held := range holdings {
		i.holdings[held]++
	}
}

func (i *Index) remove(namespace, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(binding{unique.Make(namespace), name})
}

// retain forgets the bindings of a kind that are not there.
func (i *Index) retain(everywhere bool, there map[binding]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key := range i.bindings {
		if (key.namespace.Value() == "") == everywhere && !there[key] {
			i.forget(key)
		}
	}
}

// forget is called with the lock held.
func (i *Index) forget(key binding) {
	for _, held := range i.bindings[key] {
		if i.holdings[held]--; i.holdings[held] == 0 {
			delete(i.holdings, held)
		}
	}
	delete(i.bindings, key)
}
