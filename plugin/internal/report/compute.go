package report

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// compute returns the report on what was read. It sends no request.
func compute(x contents) Report {
	r := Report{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind},
		Time:     x.time, Cluster: x.cluster, User: x.user, Versions: x.versions, Selection: x.selection,
		Notes: append([]string{}, x.notes...), Findings: []Finding{}, Templates: []Template{}, OptOuts: []OptOut{},
		Exemptions: exemptions(x.exemptions, x.time), Rights: rights(x), PendingDeletions: pendingDeletions(x),
	}
	r.addNamespaces(x)
	for _, t := range x.templates {
		row, found := templateRow(t)
		r.Templates, r.Findings = append(r.Templates, row), append(r.Findings, found...)
	}
	spaces, found := policySpaces(x.spaces)
	r.PolicySpaces, r.Findings = spaces, append(r.Findings, found...)
	for i := range x.repositories {
		r.Findings = append(r.Findings, repositoryFindings(&x.repositories[i], x.time)...)
	}
	slices.SortStableFunc(r.Findings, bySeverity)
	slices.SortFunc(r.Templates, func(a, b Template) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// addNamespaces adds the namespaces with their findings and opt-outs, and counts them.
func (r *Report) addNamespaces(x contents) {
	type result struct {
		row      Namespace
		findings []Finding
	}
	cache := render.NewCache()
	var shortened []string
	r.Namespaces = make([]Namespace, 0, len(x.namespaces))
	for i, result := range cluster.Each(x.namespaces, func(ns *corev1.Namespace) result {
		row, findings := namespace(x.index, cache, ns)
		return result{row, findings}
	}) {
		r.Namespaces = append(r.Namespaces, result.row)
		r.Findings = append(r.Findings, result.findings...)
		r.Summary.add(result.row.State)
		if populate.IsShortened(populate.PopulatedCondition(x.namespaces[i])) {
			shortened = append(shortened, x.namespaces[i].Name)
		}
		if out := optOut(x.namespaces[i]); out != nil {
			r.OptOuts = append(r.OptOuts, *out)
		}
	}
	if len(shortened) > 0 {
		r.Notes = append(r.Notes, "findings are missing: the Populated condition has no room for all of them in "+
			output.FirstFew(shortened))
	}
	slices.SortFunc(r.Namespaces, byUrgency)
	slices.SortFunc(r.OptOuts, func(a, b OptOut) int { return strings.Compare(a.Namespace, b.Namespace) })
}
