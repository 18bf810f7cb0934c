package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/plugin/internal/output"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// What a page shows at most, so that a browser can show it. The other formats have everything.
const (
	maxColumns  = 12  // templates that are columns of the matrix
	maxGroups   = 500 // findings
	maxNames    = 500 // namespaces of a finding
	maxRights   = 500
	maxSubjects = 20 // subjects of a permission
)

// page is a report as the page shows it.
type page struct {
	Report
	Style  template.CSS
	Script template.JS
	// Policy is the Content-Security-Policy: the page has no other style and script, and loads nothing.
	Policy  string
	Verdict string
	Tiles   []tile
	// HasClusters reports whether the rows have their clusters.
	HasClusters bool

	Groups        []group
	OmittedGroups int
	matrix
	RightRows     []rightRow
	OmittedRights int
	// NoSubjects stands in place of the subjects of a permission that has none.
	NoSubjects string
}

type tile struct {
	Label string
	Count int
	Class string
}

// writeHTML writes the report as a page that refers to no other file. The template escapes the text of the cluster for
// HTML, and its control characters are escaped as in all output.
func writeHTML(w io.Writer, reports []Report) error {
	r := merge(reports)
	t, err := template.New("page").Funcs(template.FuncMap{
		"date":    func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"minute":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"age":     func(t time.Time) string { return duration.HumanDuration(r.Time.Sub(t)) + " ago" },
	}).Parse(pageHTML)
	if err != nil {
		return err
	}
	var written bytes.Buffer
	if err := t.Execute(&written, newPage(r)); err != nil {
		return err
	}
	_, err = io.WriteString(w, output.EscapeLines(written.String()))
	return err
}

func newPage(r Report) page {
	p := page{
		Report: r, Style: template.CSS(pageCSS), Script: template.JS(pageJS), //nolint:gosec // parts of the program
		Policy: fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
			hash(pageCSS), hash(pageJS)),
		Verdict: verdict(r), Tiles: tiles(r.Summary), matrix: newMatrix(r.Namespaces), NoSubjects: "no subject",
		HasClusters: slices.ContainsFunc(r.Namespaces, func(ns Namespace) bool { return ns.Cluster != "" }),
	}
	p.Groups = groups(r.Findings)
	if omitted := len(p.Groups) - maxGroups; omitted > 0 {
		p.Groups, p.OmittedGroups = p.Groups[:maxGroups], omitted
	}
	for _, right := range r.Rights[:min(len(r.Rights), maxRights)] {
		p.RightRows = append(p.RightRows, newRightRow(right))
	}
	p.OmittedRights = len(r.Rights) - len(p.RightRows)
	return p
}

// hash returns the source of a style or script in a Content-Security-Policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// verdict says in one sentence whether someone must act.
func verdict(r Report) string {
	all, rest := r.Summary.Namespaces, ""
	if r.Summary.Unknown > 0 {
		rest += fmt.Sprintf(" Unknown: %d.", r.Summary.Unknown)
	}
	if r.Summary.Pending > 0 {
		rest += fmt.Sprintf(" Not populated now: %d.", r.Summary.Pending)
	}
	switch problems := r.Summary.Failed + r.Summary.Drifted; {
	case problems > 0:
		return fmt.Sprintf("Namespaces that need attention: %d of %d (%d failed, %d drifted).", problems, all,
			r.Summary.Failed, r.Summary.Drifted) + rest
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Failure }):
		return fmt.Sprintf("Failed or drifted namespaces: none known of %d, but the cluster's policies fail.", all) + rest
	case len(r.Notes) > 0 || r.Summary.Unknown > 0:
		return fmt.Sprintf("Failed or drifted namespaces: none known of %d.", all) + rest
	}
	return fmt.Sprintf("Failed or drifted namespaces: none of %d.", all) + rest
}

func tiles(s Summary) []tile {
	return []tile{
		{"Namespaces", s.Namespaces, ""},
		{"✗ Failed", s.Failed, "bad"},
		{"≠ Drifted", s.Drifted, "drift"},
		{"? Unknown", s.Unknown, "drift"},
		{"… Pending", s.Pending, ""},
		{"✓ Populated", s.Populated, "good"},
		{"– Opted out", s.OptedOut, ""},
		{"Without template", s.Unselected, ""},
	}
}

// group is a finding in one or more namespaces.
type group struct {
	Finding
	Class, Symbol string
	namespaces    []string
}

// groups joins the findings that differ only in their namespaces. It keeps their order.
func groups(findings []Finding) []group {
	var all []group
	positions := map[Finding]int{}
	for _, f := range findings {
		key := f
		key.Namespace, key.Since, key.Remedy = "", nil, ""
		i, known := positions[key]
		if !known {
			i = len(all)
			positions[key] = i
			state := shown(map[Severity]State{Failure: Failed, Drift: Drifted}[f.Severity])
			all = append(all, group{Finding: f, Class: state.class, Symbol: cmp.Or(state.symbol, "!")})
		}
		if f.Namespace != "" {
			all[i].namespaces = append(all[i].namespaces, f.Namespace)
		}
		if f.Since == nil || all[i].Since != nil && f.Since.Before(*all[i].Since) {
			all[i].Since = f.Since
		}
	}
	return all
}

// Where returns the object, the template and the first namespaces.
func (g group) Where() string {
	what := g.Object
	if g.Template != "" {
		what = strings.TrimSpace(what + " of template " + g.Template)
		what = strings.TrimPrefix(what, "of ")
	}
	if len(g.namespaces) > 0 {
		what += " in " + output.FirstFew(g.namespaces)
	}
	if g.Cluster != "" {
		what += " of cluster " + g.Cluster
	}
	return strings.TrimSpace(what)
}

// Count returns the number of namespaces.
func (g group) Count() int { return len(g.namespaces) }

// Others returns the namespaces of a finding in many namespaces.
func (g group) Others() string {
	const few = 3 // as many as FirstFew names
	if len(g.namespaces) <= few {
		return ""
	}
	return output.WithMore(g.namespaces[:min(len(g.namespaces), maxNames)], len(g.namespaces))
}

type rightRow struct {
	inCluster
	What, Only, Role string
	Subjects         []string
}

func newRightRow(right Right) rightRow {
	row := rightRow{
		inCluster: right.inCluster, What: right.What, Only: cmp.Or(strings.Join(right.Names, ", "), "all"),
		Role: right.Role,
	}
	for i, holder := range right.Subjects {
		if i == maxSubjects {
			row.Subjects = append(row.Subjects, fmt.Sprintf("and %d more, in the format json", len(right.Subjects)-i))
			break
		}
		text := output.Subject(rbacv1.Subject{Kind: holder.Kind, Namespace: holder.Namespace, Name: holder.Name})
		if len(holder.In) > 0 {
			text += " in " + output.FirstFew(holder.In)
		}
		row.Subjects = append(row.Subjects, text)
	}
	return row
}

// Indent returns the number of the style that indents a policy space.
func (s PolicySpace) Indent() int { return min(s.Depth, 7) }

// Namespaces returns the first objects of a pending deletion, and the number of the others.
func (d PendingDeletion) Namespaces() string {
	return output.WithMore(d.Names, d.Total)
}
