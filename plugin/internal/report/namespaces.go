package report

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// reasonInitializing is the reason of a namespace that waits for initializers, and is not known to be populated.
const reasonInitializing = "Initializing"

// namespace returns a namespace with its findings. The index may be nil.
func namespace(index *match.Index, cache *render.Cache, ns *corev1.Namespace) (Namespace, []Finding) {
	row := Namespace{
		Name: ns.Name, Created: ns.CreationTimestamp.UTC(), PolicySpace: ns.Labels[v1alpha1.PolicySpaceLabel],
	}
	if index != nil {
		row.Templates = cells(index, ns)
	}
	condition, skipped := populate.PopulatedCondition(ns), survey.UnpopulatedReason(ns)
	row.State = survey.StateOf(ns)
	if initialize.Initializing(ns) {
		row.PendingInitializers = initialize.Pending(ns)
	}
	switch {
	case skipped != "":
		row.Reason, row.Message = string(row.State), skipped
	case condition != nil:
		return reported(index, cache, ns, row, condition)
	case row.State == Held:
		row.Reason = reasonInitializing
		row.Message = "waits for initializers: " + strings.Join(row.PendingInitializers, ", ")
	case index == nil, slices.ContainsFunc(row.Templates, Cell.populates):
		row.Reason = string(NotReported)
		row.Message = "the operator has not reported on the namespace"
	case len(survey.Awaited(index, ns)) > 0:
		row.State, row.Reason = NotReached, string(NotReached)
		row.Message = "not populated yet: waits for the rollout of " + output.FirstFew(survey.Awaited(index, ns))
	default:
		row.State, row.Reason, row.Message = NoTemplate, "NoTemplate", "no template selects the namespace"
	}
	row.setCells(nil)
	return row, nil
}

// reported returns a namespace that has a Populated condition, with its findings.
func reported(
	index *match.Index, cache *render.Cache, ns *corev1.Namespace, row Namespace, condition *corev1.NamespaceCondition,
) (Namespace, []Finding) {
	row.Reason, row.Message = condition.Reason, condition.Message
	row.Since = output.UTC(condition.LastTransitionTime)
	findings := findingsOf(ns.Name, condition)
	lacksTemplate := func(f Finding) bool { return f.Template == "" && f.Object != "" }
	if index != nil && slices.ContainsFunc(findings, lacksTemplate) {
		addTemplates(findings, survey.Declare(cache, nil, index, ns))
	}
	row.setCells(findings)
	return row, findings
}

// addTemplates sets the templates of findings whose objects are declared, or whose labels and annotations of the
// namespace itself.
func addTemplates(findings []Finding, declared survey.Namespace) {
	templates := map[string]string{}
	for _, object := range declared.Objects {
		templates[object.ID().String()] = object.Template.Name
	}
	for i := range findings {
		f := &findings[i]
		f.Template = cmp.Or(f.Template, templates[f.Object])
		for _, value := range declared.Metadata {
			if f.Object == "namespace/"+f.Namespace && strings.HasPrefix(f.Message, value.MetadataKey.String()+" ") {
				f.Template = cmp.Or(f.Template, value.Template.Name)
			}
		}
	}
}

// cells returns the templates that select a namespace, with the revisions that it has.
func cells(index *match.Index, ns *corev1.Namespace) []Cell {
	all := []Cell{}
	if survey.UnpopulatedReason(ns) != "" && !match.OptedOut(ns) {
		return all
	}
	state := Populated
	if match.OptedOut(ns) {
		state = OptedOut
	}
	for _, template := range index.Match(ns) {
		cell := Cell{Template: template.Name, State: state}
		if state == Populated {
			cell.Revision = revision(index, template.Name, ns)
		}
		all = append(all, cell)
	}
	for _, template := range index.OptedOut(ns) {
		all = append(all, Cell{Template: template.Name, State: OptedOut})
	}
	for _, template := range index.Ahead(ns) {
		i := slices.IndexFunc(all, func(cell Cell) bool { return cell.Template == template.Name })
		if i < 0 {
			all = append(all, Cell{Template: template.Name, State: NotReached})
		} else if all[i].State == Populated {
			all[i].State = NotReached
		}
	}
	slices.SortFunc(all, func(a, b Cell) int { return strings.Compare(a.Template, b.Template) })
	return all
}

// revision returns the number of the revision of a template that a namespace has.
func revision(index *match.Index, template string, ns *corev1.Namespace) int64 {
	if layer := index.Layers(template).For(ns); layer != nil {
		return layer.Revision
	}
	return 0
}

// populates reports whether the namespace is to have objects of the template.
func (c Cell) populates() bool {
	return c.State == Populated || c.State == NotReached && c.Revision > 0
}

// setCells sets the states of the templates in a namespace by the state of the namespace and its findings.
func (n *Namespace) setCells(findings []Finding) {
	for i := range n.Templates {
		cell := &n.Templates[i]
		if !cell.populates() {
			continue
		}
		if slices.Contains([]State{Held, NotReported, Retrying, Unknown}, n.State) {
			cell.State = n.State
		}
		for _, finding := range findings {
			switch {
			case finding.Template != cell.Template:
			case finding.Severity == Failure:
				cell.State = Failed
			case finding.Severity == Drift && cell.State != Failed:
				cell.State = Drifted
			}
		}
	}
}

// add counts a namespace.
func (s *Summary) add(state State) {
	s.Namespaces++
	switch state {
	case Populated:
		s.Populated++
	case Failed:
		s.Failed++
	case Drifted:
		s.Drifted++
	case Unknown:
		s.Unknown++
	case OptedOut:
		s.OptedOut++
	case Retrying, Held, NotReported, NotReached:
		s.Pending++
	case NoTemplate, Excluded:
		s.Unselected++
	}
}

// byUrgency orders namespaces by their state, and then by their names.
func byUrgency(a, b Namespace) int {
	return cmp.Or(cmp.Compare(positionOf(a.State), positionOf(b.State)), strings.Compare(a.Name, b.Name))
}
