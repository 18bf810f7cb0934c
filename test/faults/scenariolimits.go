package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// podLimit is the quota of pods in the policyspace of the scenario quota.
const podLimit = 10

// quota: many clients create pods at once in the namespaces of one policyspace, three times, and half of the pods are
// deleted in between. The quota is never exceeded. Deletions do not overlap with creations, because Kubernetes' own
// ResourceQuotas then count too little and allow a few pods too many.
func quota() scenario {
	return scenario{
		name: "quota", unlike: true,
		before: func(r *run) {
			r.createSpace("limited", "",
				corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(podLimit, resource.DecimalSI)})
			r.createNamespaces(v1alpha1.PolicySpaceLabel, r.name("limited"))
			r.waitInSpace("limited")
			r.waitCounted(settleTimeout)
		},
		do: func(r *run) {
			r.history = newHistory()
			for wave := range 3 {
				r.createPodsConcurrently(wave)
				r.deleteHalf()
				r.waitCounted(faultyTimeout)
			}
		},
		until: func(ctx context.Context, r *run) []string { return r.uncounted(ctx) },
		check: func(r *run) []string { return append(r.quotaViolations(), r.fillQuota()...) },
	}
}

// waitCounted waits until the usage of the policyspace is counted.
func (r *run) waitCounted(timeout time.Duration) {
	r.waitUntilRight("the policyspace is not counted", timeout, r.uncounted)
}

// uncounted returns what is not counted yet or must be counted again.
func (r *run) uncounted(ctx context.Context) []string {
	space := &v1alpha1.PolicySpace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("limited")}, space); err != nil {
		return []string{err.Error()}
	}
	status := space.Status
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady) ||
		int(status.Namespaces) != r.namespaces {
		return []string{fmt.Sprintf("the policyspace is not Ready with %d namespaces: %+v", r.namespaces, status)}
	}
	if used, there := status.Used.Pods().Value(), len(r.pods()); int(used) != there {
		return []string{fmt.Sprintf("the policyspace counts %d pods, but %d exist", used, there)}
	}
	return r.inEachNamespace(ctx, func(ns *corev1.Namespace) string {
		counter := &corev1.ResourceQuota{}
		key := client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}
		if err := r.client.Get(ctx, key, counter); err != nil {
			return err.Error()
		}
		if _, again := counter.Spec.Hard[v1alpha1.RecountResource]; again {
			return ns.Name + " is to be counted again"
		}
		return ""
	})
}

// createPodsConcurrently has several clients create pods, each one after the other.
func (r *run) createPodsConcurrently(wave int) {
	const clients, pods = 8, 4
	var all sync.WaitGroup
	for number := range clients {
		all.Go(func() {
			for i := range pods {
				pod := r.pod(fmt.Sprintf("p-%d-%d-%d", wave, number, i), (number+i)%r.namespaces)
				r.history.record(number, create, pod.Name, func() outcome {
					return r.outcomeOf(r.client.Create(r.ctx, pod))
				})
			}
		})
	}
	all.Wait()
}

// deleteHalf deletes every other pod.
func (r *run) deleteHalf() {
	deleted := 0
	for name, namespace := range r.pods() {
		if deleted++; deleted%2 == 0 {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		r.history.record(0, destroy, name, func() outcome {
			return r.outcomeOf(r.client.Delete(r.ctx, pod, client.GracePeriodSeconds(0)))
		})
	}
}

func (r *run) pod(name string, namespace int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespaceNames()[namespace], Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
}

// outcomeOf returns what the answer to a creation means for the stored objects.
func (r *run) outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return accepted
	case apierrors.IsForbidden(err), apierrors.IsConflict(err):
		return refused
	}
	return unknown
}

// pods returns the namespace of each pod of the run by its name.
func (r *run) pods() map[string]string {
	names := map[string]string{}
	r.retryUntilDone("list pods", func(ctx context.Context) error {
		clear(names)
		for _, namespace := range r.namespaceNames() {
			list := &corev1.PodList{}
			if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			for _, pod := range list.Items {
				names[pod.Name] = namespace
			}
		}
		return nil
	})
	return names
}

// quotaViolations returns a violation if the history proves that the quota was exceeded.
func (r *run) quotaViolations() []string {
	there := r.pods()
	if len(there) > podLimit {
		return []string{fmt.Sprintf("%d pods exist and %d are allowed; %s", len(there), podLimit, r.describeUsage())}
	}
	return r.history.check(podLimit, there)
}

// describeUsage returns the counted usage and the number of pods of each namespace.
func (r *run) describeUsage() string {
	var text strings.Builder
	for _, namespace := range r.namespaceNames() {
		counter, pods := &corev1.ResourceQuota{}, &corev1.PodList{}
		err := errors.Join(
			r.client.Get(r.ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.QuotaName}, counter),
			r.client.List(r.ctx, pods, client.InNamespace(namespace)))
		fmt.Fprintf(&text, "%s has a counted usage of %s and has %d pods (%v); ", namespace, counter.Status.Used.Pods(),
			len(pods.Items), err)
	}
	return text.String()
}

// fillQuota creates pods until they are denied.
func (r *run) fillQuota() []string {
	return r.fill(podLimit, func() int { return len(r.pods()) }, func(i int) client.Object {
		return r.pod(fmt.Sprint("last-", i), i%r.namespaces)
	})
}

// fill creates objects until they are denied. Exactly as many as the quota allows must be allowed.
func (r *run) fill(limit int, count func() int, object func(number int) client.Object) []string {
	for i := range limit + 1 {
		full := false
		r.retryUntilDone("create an object within the quota", func(ctx context.Context) error {
			err := client.IgnoreAlreadyExists(r.client.Create(ctx, object(i)))
			if full = apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota in policyspace") &&
				count() >= limit; full {
				return nil
			}
			return err
		})
		if full || r.err != nil {
			break
		}
	}
	if n := count(); n != limit {
		return []string{fmt.Sprintf("the quota is full with %d objects instead of %d", n, limit)}
	}
	return nil
}

// uids: namespaces get ranges of user IDs. No two namespaces get the same range, and a namespace's range does not
// change.
func uids() scenario {
	constraint := constraintWith(v1alpha1.RunAsAny)
	return scenario{
		name: "uids", unlike: true,
		before:  func(r *run) { r.createNamespaces() },
		observe: (*run).watchRanges,
		do:      func(r *run) { r.createForAll(constraint) },
		until: func(ctx context.Context, r *run) []string {
			_, lacking, err := r.uidRanges(ctx)
			if err != nil {
				return []string{err.Error()}
			}
			return lacking
		},
		check: func(r *run) []string {
			holders, _, err := r.uidRanges(r.ctx)
			var twice []string
			for given, names := range holders {
				if len(names) > 1 {
					twice = append(twice, fmt.Sprintf("%s was given to %s", given, strings.Join(names, ", ")))
				}
			}
			if err != nil {
				twice = append(twice, err.Error())
			}
			return twice
		},
	}
}

// constraintWith returns a constraint with a strategy for user IDs, by which all pods are admitted.
func constraintWith(strategy string) *v1alpha1.SecurityContextConstraints {
	return &v1alpha1.SecurityContextConstraints{
		ObjectMeta:     metav1.ObjectMeta{Name: "faults"},
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: strategy},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
		Volumes:        []v1alpha1.FSType{v1alpha1.FSTypeAll},
		Groups:         []string{"system:authenticated"},
	}
}

// uidRanges returns the namespaces of the cluster by their range of user IDs, and the run's namespaces without a range.
func (r *run) uidRanges(ctx context.Context) (holders map[string][]string, lacking []string, err error) {
	list := &corev1.NamespaceList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil, nil, err
	}
	holders = map[string][]string{}
	for _, ns := range list.Items {
		given := ns.Annotations[v1alpha1.UIDRangeAnnotation]
		if given != "" {
			holders[given] = append(holders[given], ns.Name)
		} else if ns.Labels[runLabel] == r.id {
			lacking = append(lacking, ns.Name+" was given no user ids")
		}
	}
	return holders, lacking, nil
}

// watchRanges checks continuously whether the range of a namespace changes.
func (r *run) watchRanges() (changes func() []string) {
	had := map[string]string{}
	return r.checkContinuously(func(ctx context.Context) (changed []string) {
		holders, _, _ := r.uidRanges(ctx) // none if there is an error
		for given, names := range holders {
			for _, name := range names {
				if had[name] != "" && had[name] != given {
					changed = append(changed,
						fmt.Sprintf("the range of namespace %s changed from %s to %s", name, had[name], given))
				}
				had[name] = given
			}
		}
		return changed
	})
}

// accounts: service accounts are created, deleted and created again while each gets a user ID of its own. No two of a
// namespace ever have the same ID, whether one of them is deleted or not, and the ID of a service account does not
// change.
func accounts() scenario {
	return scenario{
		name: "accounts", unlike: true,
		before: func(r *run) {
			r.createForAll(constraintWith(v1alpha1.MustRunAsServiceAccount))
			r.createNamespaces()
			r.waitUntilRight("service accounts have no user IDs", settleTimeout, r.accountsWithoutID)
		},
		observe: (*run).watchAccountIDs,
		do: func(r *run) {
			for range 3 {
				for i := range 4 {
					for _, namespace := range r.namespaceNames() {
						account := &corev1.ServiceAccount{
							ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("account-", i)},
						}
						r.delete(account)
						r.create(account)
					}
				}
			}
		},
		until: func(ctx context.Context, r *run) []string { return r.accountsWithoutID(ctx) },
	}
}

// serviceAccounts returns the service accounts of the run's namespaces.
func (r *run) serviceAccounts(ctx context.Context) ([]corev1.ServiceAccount, error) {
	var all []corev1.ServiceAccount
	for _, namespace := range r.namespaceNames() {
		list := &corev1.ServiceAccountList{}
		if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("namespace %s has no service account yet", namespace)
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

// accountsWithoutID returns the service accounts without a user ID.
func (r *run) accountsWithoutID(ctx context.Context) []string {
	accounts, err := r.serviceAccounts(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	var lacking []string
	for i := range accounts {
		if accounts[i].Annotations[v1alpha1.AccountUIDAnnotation] == "" {
			lacking = append(lacking, fmt.Sprintf("service account %s/%s has no user ID", accounts[i].Namespace,
				accounts[i].Name))
		}
	}
	return lacking
}

// watchAccountIDs checks continuously whether a service account gets an ID that another one of its namespace has or
// had, or another ID than it had.
func (r *run) watchAccountIDs() (problems func() []string) {
	holders, ids := map[string]types.UID{}, map[types.UID]string{}
	return r.checkContinuously(func(ctx context.Context) (wrong []string) {
		accounts, _ := r.serviceAccounts(ctx) // none if there is an error
		for i := range accounts {
			account := &accounts[i]
			id := account.Annotations[v1alpha1.AccountUIDAnnotation]
			if id == "" && ids[account.UID] == "" {
				continue
			}
			if had := cmp.Or(ids[account.UID], id); had != id {
				wrong = append(wrong, fmt.Sprintf("the user ID of service account %s/%s changed from %s to %q",
					account.Namespace, account.Name, had, id))
			}
			key := account.Namespace + "/" + id
			if holder := cmp.Or(holders[key], account.UID); holder != account.UID {
				wrong = append(wrong, fmt.Sprintf("user ID %s was given to service account %s and to %s (%s)", key, holder,
					account.UID, account.Name))
			}
			holders[key], ids[account.UID] = account.UID, id
		}
		return wrong
	})
}

// memory: a template is edited many times. The memory of the operator does not grow.
func memory() scenario {
	const rounds, edits = 6, 100
	var sizes []int
	return scenario{
		name: "memory", unlike: true, slow: true, deletes: []string{""},
		before: func(r *run) {
			r.createTemplate("t", configMap)
			r.createNamespaces()
		},
		do: func(r *run) {
			sizes = nil
			for range rounds {
				for i := range edits {
					r.updateTemplate("t", configMap+plain(fmt.Sprint("edit-", i)))
					r.settle("after an edit", nil)
				}
				size, err := r.residentMemory()
				if err != nil {
					r.fail(err)
				}
				sizes = append(sizes, size)
			}
		},
		check: func(*run) []string {
			if first, last := sizes[1], sizes[len(sizes)-1]; last > first+first/5 {
				return []string{fmt.Sprintf("memory grows with edits, in MiB: %v", sizes)}
			}
			return nil
		},
	}
}

// residentMemory returns the resident memory of the leader in MiB.
func (r *run) residentMemory() (int, error) {
	leader, _ := r.leader()
	all, err := leader.current().AllMetrics(r.ctx)
	return int(all.Sum("process_resident_memory_bytes")) >> 20, err
}
