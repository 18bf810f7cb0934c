package scc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// accountRange returns the user ID of a pod's service account as a range. It returns a *Missing for what
// AllocateAccounts sets or repairs: the namespace may have been given other IDs just now.
func accountRange(
	namespace map[string]string, ofAccount func() (map[string]string, error),
) (v1alpha1.IDRange, error) {
	block, err := uidRange(namespace)
	if err != nil {
		return v1alpha1.IDRange{}, err
	}
	var account map[string]string
	if ofAccount != nil {
		if account, err = ofAccount(); err != nil {
			return v1alpha1.IDRange{}, err
		}
	}
	text := account[v1alpha1.AccountUIDAnnotation]
	id, wrong := accountID(text, block)
	if text == "" || wrong != "" {
		return v1alpha1.IDRange{}, &Missing{Of: "service account", Key: v1alpha1.AccountUIDAnnotation, Wrong: wrong}
	}
	return v1alpha1.IDRange{Min: id, Max: id}, nil
}

// accountID returns the ID in the annotation of a ServiceAccount, or what is wrong with it, for the user IDs of a
// namespace. Without the annotation, it returns neither.
func accountID(text string, block v1alpha1.IDRange) (id int64, wrong string) {
	if text == "" {
		return 0, ""
	}
	id, err := parseID(text)
	switch {
	case err != nil || strconv.FormatInt(id, 10) != text:
		return 0, fmt.Sprintf("%q is not a user ID", text)
	case id <= block.Min || id > block.Max:
		return 0, fmt.Sprintf("%d is not one of the user IDs %d-%d", id, block.Min+1, block.Max)
	}
	return id, ""
}

// AccountAllocation is the user ID that a ServiceAccount must be given.
type AccountAllocation struct {
	Account *metav1.PartialObjectMetadata
	ID      int64
	// Repairs is what is wrong with the current ID, or empty if there is none.
	Repairs string
}

// ReasonBlockExhausted is the reason of the Event about a namespace with more ServiceAccounts than user IDs.
const ReasonBlockExhausted = "AccountIDsExhausted"

// ErrBlockExhausted reports that every user ID of a namespace belongs to a ServiceAccount.
var ErrBlockExhausted = errors.New("every user ID of the namespace belongs to a service account: " +
	"delete service accounts that are not needed, or start the operator with larger blocks in --scc-uid-range")

// AllocateAccounts returns the user IDs that the ServiceAccounts of a namespace lack. A ServiceAccount with the ID of
// an older one, or with one that is not the namespace's, is given another. IDs are allocated in turn, from the one in
// NextAccountUIDAnnotation on, and AllocateAccounts returns the next ID for the following call. The first ID of the
// namespace is that of pods under MustRunAsRange, and belongs to no ServiceAccount. With ErrBlockExhausted,
// AllocateAccounts also returns the allocations that were possible. It returns a *Missing if the namespace has no block
// yet.
func AllocateAccounts(
	namespace map[string]string, accounts []metav1.PartialObjectMetadata,
) ([]AccountAllocation, int64, error) {
	block, err := uidRange(namespace)
	if err != nil {
		return nil, 0, err
	}
	accounts = slices.Clone(accounts)
	slices.SortFunc(accounts, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	a := &accountAllocator{block: block, used: map[int64]string{}}
	if a.next, err = parseID(namespace[v1alpha1.NextAccountUIDAnnotation]); err != nil {
		a.next = block.Min
	}
	var lacking []AccountAllocation
	for i := range accounts {
		account := &accounts[i]
		if wrong := a.record(account); wrong != "" || account.Annotations[v1alpha1.AccountUIDAnnotation] == "" {
			lacking = append(lacking, AccountAllocation{Account: account, Repairs: wrong})
		}
	}
	for i := range lacking {
		if lacking[i].ID, err = a.nextFree(lacking[i].Account.Name); err != nil {
			return lacking[:i], a.next, err
		}
	}
	return lacking, a.next, nil
}

// accountAllocator allocates user IDs of a block that no ServiceAccount has.
type accountAllocator struct {
	block v1alpha1.IDRange
	next  int64
	// used contains the name of the ServiceAccount with each ID.
	used map[int64]string
}

// record records the ID that a ServiceAccount has, and returns what is wrong with it.
func (a *accountAllocator) record(account *metav1.PartialObjectMetadata) (wrong string) {
	id, wrong := accountID(account.Annotations[v1alpha1.AccountUIDAnnotation], a.block)
	switch {
	case id == 0:
		return wrong
	case a.used[id] != "":
		return fmt.Sprintf("%d is also the user ID of service account %s", id, a.used[id])
	}
	a.used[id] = account.Name
	return ""
}

// nextFree returns the next ID that no ServiceAccount has, and records that one has it now.
func (a *accountAllocator) nextFree(name string) (int64, error) {
	for range a.block.Max - a.block.Min {
		if a.next <= a.block.Min || a.next > a.block.Max {
			a.next = a.block.Min + 1
		}
		id := a.next
		a.next++
		if a.used[id] == "" {
			a.used[id] = name
			return id, nil
		}
	}
	return 0, ErrBlockExhausted
}
