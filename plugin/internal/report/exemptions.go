package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// Exemption is a TemplateExemption: a namespace is exempt from a template, or from objects of it.
type Exemption struct {
	inCluster
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Template  string `json:"template"`
	// Objects are empty if the namespace is exempt from the whole template.
	Objects []string `json:"objects,omitempty"`
	Reason  string   `json:"reason"`
	// Expires is nil if the exemption does not end.
	Expires *time.Time `json:"expires,omitempty"`
	// State is Active, Expired or NothingMatches. Message is what the operator reports about an active one.
	State   string    `json:"state"`
	Message string    `json:"message,omitempty"`
	Created time.Time `json:"created"`
}

// readExemptions reads the exemptions of the selected namespaces.
func (x *contents) readExemptions(ctx context.Context, c *cluster.Cluster) error {
	all, err := c.Exemptions(ctx, x.namespaces)
	if unread, isUnread := errors.AsType[cluster.UnreadExemptionsError](err); isUnread {
		if !apierrors.IsForbidden(unread.Err) {
			return unread.Err
		}
		x.notes = append(x.notes,
			fmt.Sprintf("%s may not list templateexemptions: exemptions are not shown, or not all of them", x.user))
	}
	isSelected := map[string]bool{}
	for _, ns := range x.namespaces {
		isSelected[ns.Name] = true
	}
	x.exemptions = slices.DeleteFunc(all, func(e *v1alpha1.TemplateExemption) bool { return !isSelected[e.Namespace] })
	return nil
}

// exemptions returns the exemptions, the first to expire first.
func exemptions(all []*v1alpha1.TemplateExemption, now time.Time) []Exemption {
	rows := make([]Exemption, 0, len(all))
	for _, exemption := range all {
		row := Exemption{
			Namespace: exemption.Namespace, Name: exemption.Name, Template: exemption.Spec.Template,
			Reason: exemption.Spec.Reason, State: v1alpha1.ExemptionActive, Created: exemption.CreationTimestamp.UTC(),
		}
		if len(exemption.Spec.Objects) > 0 {
			row.Objects = strings.Split(match.ObjectList(&exemption.Spec), ",")
		}
		if end := exemption.Spec.Expires; end != nil {
			row.Expires = output.UTC(*end)
		}
		if ready := meta.FindStatusCondition(exemption.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			row.State, row.Message = ready.Reason, ready.Message
		}
		if match.IsExpired(exemption, metav1.NewTime(now)) {
			row.State, row.Message = v1alpha1.ExemptionExpired, ""
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Exemption) int {
		return cmp.Or(compareEnds(a.Expires, b.Expires), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	return rows
}

// compareEnds compares when exemptions end. One that does not end comes last.
func compareEnds(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

// What returns the objects of an exemption, or "all".
func (e Exemption) What() string {
	return cmp.Or(strings.Join(e.Objects, " "), "all")
}

// String returns an exemption in one line.
func (e Exemption) String() string {
	until := ""
	if e.Expires != nil {
		until = " until " + e.Expires.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s of template %s%s (%s): %s", e.What(), e.Template, until, e.State, e.Reason)
}

// byNamespace returns the exemptions in one line each, by namespace.
func byNamespace(all []Exemption) map[string][]string {
	lines := map[string][]string{}
	for _, exemption := range all {
		lines[exemption.Namespace] = append(lines[exemption.Namespace], exemption.String())
	}
	return lines
}
