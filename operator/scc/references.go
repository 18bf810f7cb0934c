package scc

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Reference is an entry of users or groups that names an object of the cluster: a ServiceAccount, or a Namespace for
// all of its ServiceAccounts. Account is empty for the latter.
type Reference struct{ Namespace, Account string }

// UserReference returns the ServiceAccount that an entry of users names, and false if it names no ServiceAccount.
func UserReference(user string) (Reference, bool) {
	namespace, account, err := serviceaccount.SplitUsername(user)
	return Reference{namespace, account}, err == nil
}

// GroupReference returns the Namespace that an entry of groups names, and false if it names no Namespace.
func GroupReference(group string) (Reference, bool) {
	namespace, found := strings.CutPrefix(group, serviceaccount.ServiceAccountGroupPrefix)
	return Reference{Namespace: namespace}, found && namespace != "" && !strings.Contains(namespace, ":")
}

// String returns the entry.
func (r Reference) String() string {
	if r.Account == "" {
		return serviceaccount.MakeNamespaceGroupName(r.Namespace)
	}
	return serviceaccount.MakeUsername(r.Namespace, r.Account)
}

// Identity holds the UIDs of the objects that a reference names. An empty UID means that the object does not exist.
type Identity struct {
	Namespace types.UID `json:"namespace,omitempty"`
	Account   types.UID `json:"serviceAccount,omitempty"`
}

// Stale reports whether an object that was seen with this identity no longer exists, or has been created anew since.
func (seen Identity) Stale(current Identity) bool {
	return seen.Namespace != "" && seen.Namespace != current.Namespace || seen.Account != "" &&
		seen.Account != current.Account
}

// referenceRecord is the value of ReferencesAnnotation.
type referenceRecord struct {
	// Of is the UID of the constraint. A copy of the constraint, in this cluster or in another, does not inherit the
	// record.
	Of types.UID `json:"of"`
	// Known holds the identity of each entry whose object existed when it was last read.
	Known map[string]Identity `json:"seen"`
}

func recordedReferences(constraint *v1alpha1.SecurityContextConstraints) map[string]Identity {
	record := referenceRecord{}
	err := json.Unmarshal([]byte(constraint.Annotations[v1alpha1.ReferencesAnnotation]), &record)
	if err != nil || record.Of != constraint.UID {
		return nil
	}
	return record.Known
}

// RecordedIdentity returns the identity that a reference of a constraint was last seen with, and false if its object
// did not exist yet.
func RecordedIdentity(constraint *v1alpha1.SecurityContextConstraints, reference Reference) (Identity, bool) {
	if constraint.Annotations[v1alpha1.ReferencesAnnotation] == "" {
		return Identity{}, false
	}
	seen, found := recordedReferences(constraint)[reference.String()]
	return seen, found
}

// References returns what the users and groups of a constraint refer to.
func References(constraint *v1alpha1.SecurityContextConstraints) []Reference {
	var references []Reference
	for _, user := range constraint.Users {
		if reference, ok := UserReference(user); ok {
			references = append(references, reference)
		}
	}
	for _, group := range constraint.Groups {
		if reference, ok := GroupReference(group); ok {
			references = append(references, reference)
		}
	}
	return references
}

// RemoveStale returns a constraint without the references whose objects were deleted since they were seen, and those
// references. It records the identities of the others. An object that never existed is not stale: administrators may
// list a ServiceAccount before they create it. If nothing changes, RemoveStale returns the constraint itself.
func RemoveStale(
	constraint *v1alpha1.SecurityContextConstraints, current func(Reference) (Identity, error),
) (*v1alpha1.SecurityContextConstraints, []Reference, error) {
	before := recordedReferences(constraint)
	after := map[string]Identity{}
	var stale []Reference
	for _, reference := range References(constraint) {
		identity, err := current(reference)
		switch {
		case err != nil:
			return nil, nil, err
		case before[reference.String()].Stale(identity):
			stale = append(stale, reference)
		case identity != Identity{}:
			after[reference.String()] = identity
		}
	}
	if len(stale) == 0 && maps.Equal(before, after) {
		return constraint, nil, nil
	}
	changed := constraint.DeepCopy()
	isStale := func(reference Reference, ok bool) bool { return ok && slices.Contains(stale, reference) }
	changed.Users = slices.DeleteFunc(changed.Users, func(user string) bool { return isStale(UserReference(user)) })
	changed.Groups = slices.DeleteFunc(changed.Groups, func(group string) bool {
		return isStale(GroupReference(group))
	})
	if err := record(changed, after); err != nil {
		return nil, nil, err
	}
	return changed, stale, nil
}

func record(constraint *v1alpha1.SecurityContextConstraints, seen map[string]Identity) error {
	if len(seen) == 0 {
		delete(constraint.Annotations, v1alpha1.ReferencesAnnotation)
		return nil
	}
	value, err := json.Marshal(referenceRecord{Of: constraint.UID, Known: seen})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&constraint.ObjectMeta, v1alpha1.ReferencesAnnotation, string(value))
	return nil
}
