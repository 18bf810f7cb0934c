package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
)

// Namespaces is the limit on the number of namespaces in and below a policy space. No ResourceQuota counts it, because
// a ResourceQuota is in a namespace.
const Namespaces corev1.ResourceName = "count/namespaces"

// Objects returns the limits of a policy space whose usage the API server counts in ResourceQuotas: all but Namespaces.
// The caller must not change them.
func Objects(space *v1alpha1.PolicySpace) corev1.ResourceList {
	hard := Hard(space)
	if _, limited := hard[Namespaces]; !limited {
		return hard
	}
	objects := maps.Clone(hard)
	delete(objects, Namespaces)
	return objects
}

// PerCreator returns the limit on the namespaces of the same creator, or nil if a policy space has none.
func PerCreator(space *v1alpha1.PolicySpace) *v1alpha1.NamespacesPerCreator {
	if space.Spec.Quota == nil {
		return nil
	}
	return space.Spec.Quota.NamespacesPerCreator
}

// LimitsNamespaces reports whether a policy space limits the number of namespaces, in total or per creator.
func LimitsNamespaces(space *v1alpha1.PolicySpace) bool {
	_, limited := Hard(space)[Namespaces]
	return limited || PerCreator(space) != nil
}

// Creator is the user who created a namespace.
type Creator struct {
	// Name is empty if the creator is unknown.
	Name string
	// Groups are the groups of the creator, as far as they are known.
	Groups []string
}

// Kinds of a v1alpha1.CreatorException.
const (
	kindUser           = "User"
	kindGroup          = "Group"
	kindServiceAccount = "ServiceAccount"
)

// withAccountGroups returns the groups of a creator with those that every ServiceAccount has.
func (c Creator) withAccountGroups() []string {
	namespace, _, err := serviceaccount.SplitUsername(c.Name)
	if err != nil {
		return c.Groups
	}
	return append(slices.Clone(c.Groups), serviceaccount.MakeGroupNames(namespace)...)
}

func matches(exception v1alpha1.CreatorException, creator Creator, groups []string) bool {
	switch exception.Kind {
	case kindUser:
		return exception.Name == creator.Name
	case kindGroup:
		return slices.Contains(groups, exception.Name)
	case kindServiceAccount:
		return serviceaccount.MatchesUsername(exception.Namespace, exception.Name, creator.Name)
	}
	return false
}

// CreatorLimit returns how many namespaces a creator may have, and whether the number is limited. A ServiceAccount has
// none without an exception: a user who may create ServiceAccounts would have no limit otherwise.
func CreatorLimit(limit *v1alpha1.NamespacesPerCreator, creator Creator) (allowed int, limited bool) {
	if limit == nil {
		return 0, false
	}
	groups := creator.withAccountGroups()
	own, isException := int32(0), false
	for _, exception := range limit.Exceptions {
		if !matches(exception, creator, groups) {
			continue
		}
		if exception.Hard == nil {
			return 0, false
		}
		own, isException = max(own, *exception.Hard), true
	}
	if isException {
		return int(own), true
	}
	if strings.HasPrefix(creator.Name, serviceaccount.ServiceAccountUsernamePrefix) {
		return 0, true
	}
	return int(limit.Hard), true
}

// NamespaceUse is how many namespaces count in a policy space, without the one that is about to be created there or to
// be moved there. A namespace of its name may exist: then the request adds nothing, or fails.
type NamespaceUse struct {
	// Existing is the number of namespaces, and Reserved that of others for which there are only reservations.
	Existing, Reserved int
	// ExistingOfCreator and ReservedOfCreator are the numbers of those that have the same creator.
	ExistingOfCreator, ReservedOfCreator int
}

// CreatorExceededError reports that a user would have more namespaces than a policy space allows.
type CreatorExceededError struct {
	Space, Creator string
	// Used is how many namespaces the user has created, and Limit how many the user may have.
	Used, Limit int
}

func (e *CreatorExceededError) Error() string {
	noun := "namespaces"
	if e.Used == 1 {
		noun = "namespace"
	}
	if namespace, name, err := serviceaccount.SplitUsername(e.Creator); err == nil && e.Limit == 0 {
		return fmt.Sprintf("no exception in spec.quota.namespacesPerCreator of policyspace %q names the "+
			"ServiceAccount %s/%s: create the namespace as a user, or ask an administrator to add one",
			e.Space, namespace, name)
	}
	return fmt.Sprintf("user %s has created %d %s in and below policyspace %q, and its limit per creator is %d",
		e.Creator, e.Used, noun, e.Space, e.Limit)
}

// PendingError reports that a limit has no room only because of reservations. Each of them becomes a namespace or ends.
type PendingError struct {
	Space    string
	Reserved int
}

func (e *PendingError) Error() string {
	noun := "namespaces are"
	if e.Reserved == 1 {
		noun = "namespace is"
	}
	return fmt.Sprintf("the last room in policyspace %q is reserved while %d %s being created: try again", e.Space,
		e.Reserved, noun)
}

// CheckNamespaces returns nil if a policy space has room for one more namespace, and otherwise an ExceededError, a
// CreatorExceededError, or a PendingError if the namespaces that exist would leave room.
func CheckNamespaces(space *v1alpha1.PolicySpace, creator Creator, use NamespaceUse) error {
	var pending error
	limit, limited := Hard(space)[Namespaces]
	if limited {
		switch {
		case limit.Cmp(number(use.Existing+1)) < 0:
			one := func(n resource.Quantity) corev1.ResourceList { return corev1.ResourceList{Namespaces: n} }
			return &ExceededError{
				Space: space.Name, Requested: one(number(use.Existing + 1)), Limit: one(limit),
				Used: one(number(use.Existing)),
			}
		case limit.Cmp(number(use.Existing+use.Reserved+1)) < 0:
			pending = &PendingError{Space: space.Name, Reserved: use.Reserved}
		}
	}
	allowed, limited := CreatorLimit(PerCreator(space), creator)
	if limited && creator.Name != "" {
		switch {
		case use.ExistingOfCreator+1 > allowed:
			return &CreatorExceededError{
				Space: space.Name, Creator: creator.Name, Used: use.ExistingOfCreator, Limit: allowed,
			}
		case use.ExistingOfCreator+use.ReservedOfCreator+1 > allowed:
			pending = &PendingError{Space: space.Name, Reserved: use.ReservedOfCreator}
		}
	}
	return pending
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// WithReservation returns reservations with one more. An earlier one for the same namespace, which goes on from an
// older state of it, is replaced.
func WithReservation(
	reservations []v1alpha1.NamespaceReservation, added v1alpha1.NamespaceReservation,
) []v1alpha1.NamespaceReservation {
	others := slices.DeleteFunc(slices.Clone(reservations), func(r v1alpha1.NamespaceReservation) bool {
		return r.UID == added.UID && freshness.AtLeast(added.Since, r.Since)
	})
	return append(others, added)
}

// WithNamespaces returns a status with the number of namespaces in and below a policy space, including reservations. It
// returns the status unchanged if the number is not limited.
func WithNamespaces(
	space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, used int,
) v1alpha1.PolicySpaceStatus {
	if _, limited := Hard(space)[Namespaces]; !limited {
		return status
	}
	status.Used = maps.Clone(status.Used)
	if status.Used == nil {
		status.Used = corev1.ResourceList{}
	}
	status.Used[Namespaces] = number(used)
	status.Quota = summary(status.Used, Hard(space))
	return status
}
