package report

import (
	"slices"
	"strings"
)

// merge returns one report on several clusters, for a page. Its rows have their clusters.
func merge(reports []Report) Report {
	if len(reports) == 1 {
		return reports[0]
	}
	all := Report{TypeMeta: reports[0].TypeMeta, Time: reports[0].Time, Selection: reports[0].Selection}
	all.Versions.Plugin = reports[0].Versions.Plugin
	var clusters, users, operators, kubernetes []string
	for i := range reports {
		r := &reports[i]
		clusters, users = append(clusters, r.Cluster), append(users, r.User)
		operators, kubernetes = append(operators, r.Versions.Operator), append(kubernetes, r.Versions.Kubernetes)
		for _, note := range r.Notes {
			all.Notes = append(all.Notes, r.Cluster+": "+note)
		}
		in := inCluster{r.Cluster}
		all.Findings = appendIn(all.Findings, r.Findings, func(f *Finding) { f.inCluster = in })
		all.Namespaces = appendIn(all.Namespaces, r.Namespaces, func(ns *Namespace) { ns.inCluster = in })
		all.Templates = appendIn(all.Templates, r.Templates, func(t *Template) { t.inCluster = in })
		all.PolicySpaces = appendIn(all.PolicySpaces, r.PolicySpaces, func(s *PolicySpace) { s.inCluster = in })
		all.OptOuts = appendIn(all.OptOuts, r.OptOuts, func(o *OptOut) { o.inCluster = in })
		all.Exemptions = appendIn(all.Exemptions, r.Exemptions, func(e *Exemption) { e.inCluster = in })
		all.Rights = appendIn(all.Rights, r.Rights, func(right *Right) { right.inCluster = in })
		all.PendingDeletions = appendIn(all.PendingDeletions, r.PendingDeletions,
			func(d *PendingDeletion) { d.inCluster = in })
	}
	all.Cluster, all.User = strings.Join(clusters, ", "), distinct(users)
	all.Versions.Operator, all.Versions.Kubernetes = distinct(operators), distinct(kubernetes)
	for _, ns := range all.Namespaces {
		all.Summary.add(ns.State)
	}
	slices.SortStableFunc(all.Findings, bySeverity)
	slices.SortStableFunc(all.Namespaces, byUrgency)
	return all
}

// appendIn appends copies of rows of a cluster, of which set sets the cluster.
func appendIn[T any](all, rows []T, set func(*T)) []T {
	for _, row := range rows {
		set(&row)
		all = append(all, row)
	}
	return all
}

// distinct returns the values that are not empty, each once.
func distinct(values []string) string {
	var found []string
	for _, value := range values {
		if value != "" && !slices.Contains(found, value) {
			found = append(found, value)
		}
	}
	return strings.Join(found, ", ")
}
