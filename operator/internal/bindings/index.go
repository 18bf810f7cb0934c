// Package bindings reports which users and groups hold which roles, from a watch of RoleBindings and
// ClusterRoleBindings. It keeps no objects: an Index has, for each namespace, role and subject, the number of bindings
// that grant the role.
package bindings

import (
	"sync"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// Index reports whether a user or group holds a role. It shares names, because tens of thousands of bindings have few
// different ones. It is safe for concurrent use.
type Index struct {
	mu sync.RWMutex
	// bindings are the holdings of each binding.
	bindings map[binding][]holding
	// holdings counts the bindings through which a subject holds a role.
	holdings map[holding]int
}

// binding identifies a RoleBinding, or a ClusterRoleBinding, whose namespace is empty.
type binding struct {
	namespace unique.Handle[string]
	name      string
}

// holding means that a subject holds a role in a namespace, or in all namespaces if the namespace is empty.
type holding struct {
	namespace unique.Handle[string]
	role      unique.Handle[role]
	subject   unique.Handle[attributes.Subject]
}

func keyOf(b metav1.Object) binding {
	return binding{unique.Make(b.GetNamespace()), b.GetName()}
}

type role struct{ kind, name string }

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{bindings: map[binding][]holding{}, holdings: map[holding]int{}}
}

// Holds reports whether a requester holds a role in a namespace, through a ClusterRoleBinding or through a RoleBinding
// in the namespace.
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

// retain removes the ClusterRoleBindings, or the RoleBindings, that do not exist.
func (i *Index) retain(isCluster bool, existing map[binding]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key := range i.bindings {
		if (key.namespace.Value() == "") == isCluster && !existing[key] {
			i.forget(key)
		}
	}
}

// forget removes a binding. It must be called with the lock held.
func (i *Index) forget(key binding) {
	for _, held := range i.bindings[key] {
		if i.holdings[held]--; i.holdings[held] == 0 {
			delete(i.holdings, held)
		}
	}
	delete(i.bindings, key)
}
