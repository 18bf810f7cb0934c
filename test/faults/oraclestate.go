package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
)

// problems returns the differences from the expected state: first statuses, which are cheap to read, then declared
// objects, and then the whole state if one is given.
func (r *run) problems(ctx context.Context, want state) []string {
	namespaces := &corev1.NamespaceList{}
	if err := r.client.List(ctx, namespaces, client.MatchingLabels{runLabel: r.id}); err != nil {
		return []string{err.Error()}
	}
	templates := &v1alpha1.NamespaceTemplateList{}
	if err := r.client.List(ctx, templates); err != nil {
		return []string{err.Error()}
	}
	templates.Items = slices.DeleteFunc(templates.Items, func(t v1alpha1.NamespaceTemplate) bool {
		return !strings.HasPrefix(t.Name, r.id+"-")
	})
	var all []string
	populated := map[string]bool{}
	for i := range templates.Items {
		template := &templates.Items[i]
		selected := selectedBy(template, namespaces.Items)
		for _, ns := range selected {
			populated[ns] = true
		}
		all = append(all, r.statusProblems(template, int32(len(selected)))...)
		all = append(all, r.missingRevisions(ctx, template)...)
	}
	for i := range namespaces.Items {
		all = append(all, r.namespaceProblems(&namespaces.Items[i], populated[namespaces.Items[i].Name])...)
	}
	all = append(all, r.syncProblems(ctx, namespaces.Items)...)
	if len(all) > 0 {
		return all
	}
	found, err := r.state(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for i := range templates.Items {
		all = append(all,
			r.missingObjects(found, &templates.Items[i], selectedBy(&templates.Items[i], namespaces.Items))...)
	}
	if want != nil {
		all = append(all, found.differences(want)...)
	}
	return all
}

// selectedBy returns the names of the namespaces that a template selects.
func selectedBy(template *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace) []string {
	selector, err := metav1.LabelSelectorAsSelector(template.Spec.Namespaces.LabelSelector)
	if err != nil {
		return nil
	}
	var names []string
	for _, ns := range namespaces {
		if selector.Matches(labels.Set(ns.Labels)) {
			names = append(names, ns.Name)
		}
	}
	return names
}

// statusProblems returns what is incorrect in a template's status.
func (r *run) statusProblems(template *v1alpha1.NamespaceTemplate, selected int32) []string {
	status, name := template.Status, "template "+template.Name
	if template.DeletionTimestamp != nil {
		return []string{name + " is still being deleted"}
	}
	if status.ObservedGeneration != template.Generation {
		return []string{name + " was not taken in"}
	}
	want := v1alpha1.NamespaceCounts{Matched: selected, Updated: selected, Populated: selected}
	if r.drifts && r.policy == v1alpha1.DriftReport {
		want.Populated, want.Drifted = status.Namespaces.Populated, selected-status.Namespaces.Populated
	}
	if status.Namespaces != want {
		return []string{fmt.Sprintf("the status of %s counts %+v instead of %+v, with the failures %+v", name,
			status.Namespaces, want, status.Failures)}
	}
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.TemplatePopulated); condition != nil &&
		selected > 0 &&
		condition.Status != metav1.ConditionTrue && !r.drifts {
		return []string{fmt.Sprintf("%s is not Populated: %s", name, condition.Message)}
	}
	return nil
}

// namespaceProblems returns what is incorrect in a namespace's condition.
func (r *run) namespaceProblems(ns *corev1.Namespace, selected bool) []string {
	if ns.DeletionTimestamp != nil {
		return []string{"namespace " + ns.Name + " is still being deleted"}
	}
	if ns.Labels[v1alpha1.InitializingLabel] != "" {
		return []string{"namespace " + ns.Name + " is still being initialized"}
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type != v1alpha1.NamespacePopulated {
			continue
		}
		drifted := strings.Contains(condition.Message, "drifted")
		if selected && (condition.Status != corev1.ConditionTrue || drifted && !r.drifts) {
			return []string{fmt.Sprintf("namespace %s: Populated is %s: %s", ns.Name, condition.Status,
				condition.Message)}
		}
		return nil
	}
	if selected {
		return []string{"namespace " + ns.Name + " has no condition Populated"}
	}
	return nil
}

// missingObjects returns the declared objects that do not exist in the namespaces that a template selects.
func (r *run) missingObjects(found state, template *v1alpha1.NamespaceTemplate, selected []string) []string {
	if r.drifts && r.policy == v1alpha1.DriftReport {
		return nil
	}
	var all []string
	for _, object := range r.templates[strings.TrimPrefix(template.Name, r.id+"-")] {
		if strings.Contains(object.GetName(), "$(") {
			continue // the comparison with an undisturbed run shows it
		}
		for _, ns := range selected {
			what := fmt.Sprintf("%s %s/%s", strings.ToLower(object.GetKind()), strings.Replace(ns, r.id, "RUN", 1),
				object.GetName())
			if _, ok := found[what]; !ok {
				all = append(all, fmt.Sprintf("%s is declared by template %s and does not exist", what, template.Name))
			}
		}
	}
	return all
}

// isOfRun reports whether a request is about an object of this run.
func (r *run) isOfRun(request audit.Request) bool {
	return strings.HasPrefix(request.ObjectRef.Namespace+"/", r.id+"-") ||
		strings.HasPrefix(strings.TrimPrefix(request.ObjectRef.Name, syncAccount+"-"), r.id+"-")
}

// writesWhenIdle returns the writes of the operator and of nstpl-sync in a second after they have become idle, which
// begins with a second without writes.
func (r *run) writesWhenIdle() []string {
	if r.err != nil {
		return nil
	}
	since, quiet := r.writes(), time.Now()
	for begin := time.Now(); time.Since(quiet) < time.Second && r.ctx.Err() == nil; {
		pause(r.ctx, 50*time.Millisecond)
		if now := r.writes(); now != since {
			since, quiet = now, time.Now()
		}
		if time.Since(begin) > 30*time.Second {
			return []string{"writes continue although the state is as expected: " + r.lastWrites(5)}
		}
	}
	pause(r.ctx, time.Second)
	if now := r.writes(); now != since {
		return []string{fmt.Sprintf("%d writes in a second of idleness: %s", now-since, r.lastWrites(now-since))}
	}
	return nil
}

// writes returns the number of writes of the operator and of nstpl-sync for this run.
func (r *run) writes() int {
	total := 0
	for _, account := range r.accounts() {
		total += len(r.writesOf(account, r.isOfRun))
	}
	return total
}

// accounts returns the user names of the operator and of nstpl-sync.
func (r *run) accounts() []string {
	return []string{r.testCluster.operator.account(), r.testCluster.sync.account()}
}

func (r *run) writesOf(account string, counted func(audit.Request) bool) []audit.Request {
	writes, err := r.audit.WritesOf(account, r.from, counted)
	r.noteProblem(err)
	return writes
}

// lastWrites describes the last writes of the operator, and of nstpl-sync.
func (r *run) lastWrites(n int) string {
	var text []string
	for _, account := range r.accounts() {
		writes := r.writesOf(account, r.isOfRun)
		for _, write := range writes[max(0, len(writes)-n):] {
			text = append(text, write.Verb+" "+write.RequestURI)
		}
	}
	return strings.Join(text, ", ")
}

// missingRevisions returns the revisions in the status of a template that are not stored.
func (r *run) missingRevisions(ctx context.Context, template *v1alpha1.NamespaceTemplate) []string {
	var missing []string
	for _, revision := range template.Status.Revisions {
		key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: revision.Name}
		if err := r.client.Get(ctx, key, &appsv1.ControllerRevision{}); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return missing
}

// undeclared and rebound are parts of the names of objects that others create and that the operator may delete: objects
// that an authoritative template does not declare, RoleBindings that it must replace, and namespaces that expire with
// the consent of their users.
const (
	undeclared = "undeclared"
	rebound    = "rebound"
	consents   = "consents"
)

// forbiddenDeletions returns the objects that the operator or nstpl-sync deleted although it had not created them, or
// although a template or the tree declares them.
func (r *run) forbiddenDeletions() []string {
	var all []string
	for _, account := range r.accounts() {
		all = append(all, r.forbiddenDeletionsOf(account)...)
	}
	return all
}

func (r *run) forbiddenDeletionsOf(account string) []string {
	var all []string
	err := r.audit.CheckDeletionsOf(account, r.from, func(request audit.Request) bool {
		name := request.ObjectRef.Name
		return !r.isOfRun(request) || strings.Contains(name, undeclared) || strings.Contains(name, rebound) ||
			strings.Contains(name, consents) || name == v1alpha1.QuotaName
	})
	if err != nil {
		all = strings.Split(err.Error(), "\n")
	}
	deleted := r.writesOf(account, func(request audit.Request) bool {
		name := request.ObjectRef.Name
		return r.isOfRun(request) && request.Verb == "delete" && name != v1alpha1.QuotaName &&
			request.ObjectRef.Resource != "controllerrevisions" && // see missingRevisions
			!slices.ContainsFunc(r.deletes, func(part string) bool { return strings.Contains(name, part) })
	})
	for _, request := range deleted {
		all = append(all, account+" deleted a declared object: "+request.RequestURI)
	}
	return all
}

// falseDriftEvents returns the Events that report drift although no other client has changed anything.
func (r *run) falseDriftEvents() []string {
	if r.drifts {
		return nil
	}
	var all []string
	for _, name := range r.namespaceNames() {
		list := &eventsv1.EventList{}
		if err := r.client.List(r.ctx, list, client.InNamespace(name)); err != nil {
			return []string{err.Error()}
		}
		for _, event := range list.Items {
			if strings.Contains(event.Reason, "Drift") {
				all = append(all, fmt.Sprintf("false Event in namespace %s: %s: %s", name, event.Reason, event.Note))
			}
		}
	}
	return all
}
