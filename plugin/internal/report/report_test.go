package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func TestCompute(t *testing.T) {
	r := compute(contentsOf(4))
	require.Equal(t, Summary{Namespaces: 4, Populated: 1, Failed: 1, Drifted: 1, OptedOut: 1}, r.Summary)
	states := map[string]State{}
	for _, ns := range r.Namespaces {
		states[ns.Name] = ns.State
	}
	require.Equal(t, map[string]State{
		"shop-0000": Failed, "shop-0001": Drifted, "shop-0002": OptedOut, "shop-0003": Populated,
	}, states)
	require.Equal(t, "shop-0000", r.Namespaces[0].Name, "failures come first")
	require.Equal(t, []Cell{
		{"base", Populated, 1}, {"network", Populated, 1}, {"quota", Failed, 1}, {"team-00", Populated, 1},
	}, r.Namespaces[0].Templates)
	require.Equal(t, Cell{"network", Drifted, 1}, r.Namespaces[1].Templates[1],
		"the message does not name the template of an object that has drifted")
	require.Len(t, r.Findings, 2)
	require.Equal(t, Failure, r.Findings[0].Severity)
	since := now.Add(-72 * time.Hour)
	require.Equal(t, []OptOut{{
		Namespace: "shop-0002", Since: &since, By: "kubectl-nstpl", Creator: "jane@example.com",
	}}, r.OptOuts)
	require.Equal(t, "corp", r.PolicySpaces[0].Name)
	require.Equal(t, PolicySpace{
		Name: "team-01", Parent: "corp", Depth: 1, Namespaces: 75,
		Quota: []Usage{{"pods", "3", "100", new(3)}, {"requests.cpu", "8", "8", new(100)}},
	}, r.PolicySpaces[2])
	require.Len(t, r.PendingDeletions, 1)
	require.Contains(t, r.PendingDeletions[0].Why, "kubectl nstpl sync confirm corp 0a1b2c3")
}

func TestFindingsForWhichAConditionHasNoRoomAreMissing(t *testing.T) {
	x := contentsOf(4)
	require.Empty(t, compute(x).Notes)
	x.namespaces[1].Status.Conditions[0].Message += "; …"
	require.Equal(t, []string{
		"findings are missing: the Populated condition has no room for all of them in shop-0001",
	}, compute(x).Notes)
	x.namespaces[3].Status.Conditions[0].Message = "secret/x: no; secret/y: no; …"
	r := compute(x)
	require.Equal(t, Summary{Namespaces: 4, Failed: 1, Drifted: 1, Unknown: 1, OptedOut: 1}, r.Summary)
	require.Equal(t, Unknown, r.Namespaces[2].Templates[0].State)
	require.NotNil(t, caseOf(r.Namespaces[2], nil, now).Skipped)
}

// What the user may not read is null in JSON, and not an empty list that looks like an answer.
func TestTemplatesThatMayNotBeListedAreUnknown(t *testing.T) {
	x := contentsOf(4)
	x.index, x.templates, x.hasTemplates = nil, nil, false
	r := compute(x)
	require.Nil(t, r.Namespaces[0].Templates)
	require.Equal(t, Failed, r.Namespaces[0].State)
	require.Equal(t, "quota", r.Findings[0].Template)
	row, _ := namespace(nil, render.NewCache(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	require.Equal(t, NotReported, row.State)
}

func TestStatesOfNamespaces(t *testing.T) {
	index := match.NewIndex(newTemplate("base", &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}))
	initializing := map[string]string{"x": "y", v1alpha1.InitializingLabel: "true"}
	failed := func(reason string) []corev1.NamespaceCondition {
		return []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: reason, Message: "m",
		}}
	}
	for name, test := range map[string]struct {
		name                string
		labels, annotations map[string]string
		conditions          []corev1.NamespaceCondition
		want                State
	}{
		"no template":  {"a", nil, nil, nil, NoTemplate},
		"not reported": {"a", map[string]string{"x": "y"}, nil, nil, NotReported},
		"held":         {"a", initializing, map[string]string{v1alpha1.PendingAnnotation: "audit"}, nil, Held},
		"excluded":     {"kube-system", map[string]string{"x": "y"}, nil, nil, Excluded},
		"retrying":     {"a", map[string]string{"x": "y"}, nil, failed(populate.ConditionRetrying), Retrying},
		"failed":       {"a", initializing, nil, failed(populate.ConditionObjectsFailed), Failed},
		"without room for drift": {
			"a", map[string]string{"x": "y"}, nil, []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Message: "secret/x: no; secret/y: no; …",
			}}, Unknown,
		},
		"opted out of one": {
			"a", map[string]string{"x": "y"}, map[string]string{v1alpha1.OptOutAnnotation: "base"}, nil, NoTemplate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			row, _ := namespace(index, render.NewCache(), &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: test.name, Labels: test.labels, Annotations: test.annotations},
				Status:     corev1.NamespaceStatus{Conditions: test.conditions},
			})
			require.Equal(t, test.want, row.State)
		})
	}
}

func TestANamespaceThatARolloutHasNotReached(t *testing.T) {
	template := newTemplate("base", &metav1.LabelSelector{})
	template.Generation, template.CreationTimestamp = 1, metav1.NewTime(now)
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{{
		Name: "base-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutPaused, StartTime: metav1.NewTime(now),
	}}, map[string]*v1alpha1.NamespaceTemplateSpec{"base-1": &template.Spec}))
	row, _ := namespace(index, render.NewCache(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}})
	require.Equal(t, []Cell{{Template: "base", State: NotReached}}, row.Templates)
	require.Equal(t, "not populated yet: waits for the rollout of base", row.Message)
}

// Only a full quota is at 100 percent.
func TestUsageIsRoundedDown(t *testing.T) {
	space := &v1alpha1.PolicySpace{Spec: v1alpha1.PolicySpaceSpec{Quota: &v1alpha1.PolicySpaceQuota{
		Hard: corev1.ResourceList{"pods": resource.MustParse("1000")},
	}}}
	space.Status.Hard = space.Spec.Quota.Hard
	for used, want := range map[string]int{"996": 99, "999": 99, "1000": 100, "1001": 100} {
		space.Status.Used = corev1.ResourceList{"pods": resource.MustParse(used)}
		row, _ := policySpace(space, 0)
		require.Equal(t, want, *row.Quota[0].Percent, used)
	}
}

// Before all namespaces have counted, a quota of which all is used must not look like one of which little is used.
func TestUsageThatIsNotCountedIsUnknown(t *testing.T) {
	space := &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: v1alpha1.PolicySpaceSpec{Quota: &v1alpha1.PolicySpaceQuota{
			Hard: corev1.ResourceList{"pods": resource.MustParse("10")},
		}},
	}
	space.Status.Used = corev1.ResourceList{"pods": resource.MustParse("1")}
	row, _ := policySpace(space, 0)
	require.Equal(t, []Usage{{Resource: "pods", Limit: "10"}}, row.Quota)
	var page bytes.Buffer
	require.NoError(t, writeHTML(&page, []Report{{PolicySpaces: []PolicySpace{row}}}))
	require.Contains(t, page.String(), "<span>pods</span><span>unknown of 10</span>")
}

func TestDriftOfALabelIsThatOfItsTemplate(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tiers"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "gold"}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	ns.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated,
		Message: "0 objects of tiers; namespace/team-a: drifted: label tier was removed by another client; driftPolicy is Report",
	}}
	row, findings := namespace(match.NewIndex(template), render.NewCache(), ns)
	require.Equal(t, []Cell{{Template: "tiers", State: Drifted}}, row.Templates)
	require.Len(t, findings, 1)
	require.Equal(t, "tiers", findings[0].Template)
}

// The messages are those that the operator writes.
func TestFindingsAreReadFromTheMessage(t *testing.T) {
	object := func(kind, name string) populate.ObjectID {
		return populate.ObjectID{GroupKind: rbacv1.SchemeGroupVersion.WithKind(kind).GroupKind(), Name: name}
	}
	written := []populate.Finding{
		{
			Object: object("Role", "system:x"), Template: "base", Severity: populate.Error, Reason: populate.FindingFailed,
			Message: "denied: first; second",
		},
		{
			Object: object("Role", "b"), Template: "base", Severity: populate.Warning, Reason: populate.FindingDrifted,
			Message: "drifted: rules changed by jane",
		},
		{
			Object: object("Role", "c"), Template: "base", Severity: populate.Warning, Reason: populate.FindingUndeclared,
			Message: "no template declares it, and template base is authoritative for its kind; authoritativePolicy is Report",
		},
		{
			Object: object("Role", "d"), Severity: populate.Warning, Reason: populate.FindingCreatorUnknown,
			Message: "left out: the creator is unknown",
		},
	}
	var parts []string
	for _, f := range written {
		parts = append(parts, f.String())
	}
	found := findingsOf("team-a", &corev1.NamespaceCondition{
		Status: corev1.ConditionFalse, Reason: populate.ConditionObjectsFailed, Message: strings.Join(parts, "; "),
	})
	require.Len(t, found, len(written))
	for i, want := range []struct {
		severity         Severity
		object, template string
		message          string
	}{
		{Failure, "role.rbac.authorization.k8s.io/system:x", "base", "denied: first; second"},
		{Drift, "role.rbac.authorization.k8s.io/b", "", "rules changed by jane"},
		{Drift, "role.rbac.authorization.k8s.io/c", "", written[2].Message},
		{Warning, "role.rbac.authorization.k8s.io/d", "", "left out: the creator is unknown"},
	} {
		require.Equal(t, want.severity, found[i].Severity)
		require.Equal(t, want.object, found[i].Object)
		require.Equal(t, want.template, found[i].Template)
		require.Equal(t, want.message, found[i].Message)
		require.NotEmpty(t, found[i].Remedy)
	}
	require.Empty(t, findingsOf("team-a", &corev1.NamespaceCondition{
		Status: corev1.ConditionTrue, Message: "3 objects of base, team",
	}))
}

func TestRights(t *testing.T) {
	group := []string{v1alpha1.GroupVersion.Group}
	platform := []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"namespacetemplates"}, Verbs: []string{"use"}, ResourceNames: []string{"b", "a"}},
		{APIGroups: group, Resources: []string{"securitycontextconstraints"}, Verbs: []string{"*"}},
	}
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	x := contents{
		clusterRoles: []*rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: "platform"}, Rules: platform},
			{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Rules: all},
			{ObjectMeta: metav1.ObjectMeta{Name: "unbound"}, Rules: platform},
		},
		bound: cluster.BoundSubjects{},
	}
	bind := func(role, in, user string) {
		ref := v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		x.bound[ref] = append(x.bound[ref], cluster.BoundSubject{
			Subject: rbacv1.Subject{Kind: "User", Name: user}, Namespace: in,
		})
	}
	bind("cluster-admin", "", "root")
	bind("platform", "", "jane")
	bind("platform", "team-a", "jane")
	bind("platform", "team-a", "olga")
	bind("platform", "team-b", "olga")
	jane, olga := Holder{Kind: "User", Name: "jane"}, Holder{Kind: "User", Name: "olga", In: []string{"team-a", "team-b"}}
	require.Equal(t, []Right{
		{What: "everything", Role: "clusterrole/cluster-admin", Subjects: []Holder{{Kind: "User", Name: "root"}}},
		{What: "use security context constraints", Role: "clusterrole/platform", Subjects: []Holder{jane, olga}},
		{
			What: "use templates", Names: []string{"a", "b"}, Role: "clusterrole/platform", Subjects: []Holder{jane},
		},
	}, rights(x))
}

func TestCSV(t *testing.T) {
	r := compute(contentsOf(3))
	r.Findings[0].Message = "=HYPERLINK(\"http://example.com\")"
	r.Findings[1].Message = "@SUM(1)\n\x1b[2J"
	var written bytes.Buffer
	require.NoError(t, writeCSV(&written, []Report{r}, false))
	rows, err := csv.NewReader(&written).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, columns, rows[0])
	require.Equal(t, []string{"shop-0000", "Failed", "Failure", "quota"}, rows[1][:4])
	require.Equal(t, "'=HYPERLINK(\"http://example.com\")", rows[1][6])
	require.Equal(t, `'@SUM(1)\n\x1b[2J`, rows[2][6])
	require.Equal(t, "base network quota team-02", rows[3][10])
	require.Equal(t, "all", rows[3][11])
}

func TestJUnit(t *testing.T) {
	var written bytes.Buffer
	r := compute(contentsOf(4))
	r.Findings[0].Message += " ]]> \x1b"
	require.NoError(t, writeJUnit(&written, []Report{r}, false))
	var suites junitSuites
	require.NoError(t, xml.Unmarshal(written.Bytes(), &suites))
	suite := suites.Suites[0]
	require.Equal(t, []int{5, 2, 1, 5}, []int{suite.Tests, suite.Failures, suite.Skipped, len(suite.Cases)})
	require.Equal(t, clusterCase, suite.Cases[0].Name)
	require.Nil(t, suite.Cases[0].Failure)
	require.Equal(t, "shop-0000", suite.Cases[1].Name)
	require.Equal(t, "ObjectsFailed", suite.Cases[1].Failure.Type)
	require.Contains(t, suite.Cases[1].Failure.Message, `of template quota: resourcequotas "budget" is forbidden`)
	require.Contains(t, suite.Cases[1].Failure.Text, `]]> \x1b`)
	require.NotNil(t, suite.Cases[3].Skipped)
}

// A namespace that waits for initializers fails unless it is populated, since nothing may ever populate it.
func TestJUnitOfNamespacesThatWait(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{v1alpha1.InitializingLabel: ""},
		Annotations:       map[string]string{v1alpha1.PendingAnnotation: "audit"},
		CreationTimestamp: metav1.Unix(0, 0),
	}}
	now := time.Unix(100, 0)
	row, findings := namespace(nil, nil, ns)
	require.Equal(t, Held, row.State)
	require.Equal(t, &junitMessage{Message: "waits for initializers: audit", Type: "Initializing"},
		caseOf(row, findings, now).Failure)
	require.Nil(t, caseOf(row, findings, time.Unix(50, 0)).Failure, "it is new")

	ns.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Reason: "Populated",
	}}
	row, findings = namespace(nil, nil, ns)
	require.Equal(t, Held, row.State)
	require.Nil(t, caseOf(row, findings, now).Failure)
	require.NotNil(t, caseOf(row, findings, now).Skipped)
}

// Rows of several clusters name their clusters, and equal rows of two clusters stay two.
func TestReportsOnSeveralClusters(t *testing.T) {
	test, production := contentsOf(2), contentsOf(3)
	test.cluster, production.cluster = "test", "production"
	test.notes = []string{"the operator is not running"}
	reports := []Report{compute(test), compute(production)}
	merged := merge(reports)
	require.Equal(t, Summary{Namespaces: 5, Failed: 2, Drifted: 2, OptedOut: 1}, merged.Summary)
	require.Equal(t, []string{"test: the operator is not running"}, merged.Notes)
	require.Len(t, groups(merged.Findings), 4)
	require.Equal(t, Failure, merged.Findings[1].Severity, "the failures of all clusters come first")

	var page, table, suites bytes.Buffer
	require.NoError(t, writeHTML(&page, reports))
	require.Contains(t, page.String(), "<h1>Policy report on test, production</h1>")
	require.Contains(t, page.String(), `<th scope="row">shop-0000<td>test`)
	require.Contains(t, page.String(), `<th scope="row">shop-0000<td>production`)
	require.Contains(t, page.String(), "in shop-0000 of cluster test")
	require.NotContains(t, onePage(t, reports[0]), "Cluster</th>")

	require.NoError(t, writeCSV(&table, reports, true))
	rows, err := csv.NewReader(&table).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 6)
	require.Equal(t, "cluster", rows[0][len(columns)])
	require.Equal(t, []string{"test", "production"}, []string{rows[1][len(columns)], rows[5][len(columns)]})

	require.NoError(t, writeJUnit(&suites, reports, true))
	var parsed junitSuites
	require.NoError(t, xml.Unmarshal(suites.Bytes(), &parsed))
	require.Equal(t, []string{"test", "production"}, []string{parsed.Suites[0].Name, parsed.Suites[1].Name})
}

func onePage(t *testing.T, r Report) string {
	t.Helper()
	var written bytes.Buffer
	require.NoError(t, writeHTML(&written, []Report{r}))
	return written.String()
}

// Users write the names and messages of a report.
func TestThePageEscapesWhatTheClusterContains(t *testing.T) {
	x := contentsOf(3)
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x1b\u202e"
	x.namespaces[0].Status.Conditions[0].Message = evil
	x.namespaces[0].Labels[v1alpha1.PolicySpaceLabel] = evil
	x.user, x.cluster, x.notes = evil, evil, []string{evil}
	x.templates[0].Name = evil
	x.repositories[0].Name = evil
	var written bytes.Buffer
	require.NoError(t, writeHTML(&written, []Report{compute(x)}))
	page := written.String()
	require.NotContains(t, page, "<script>alert")
	require.NotContains(t, page, "<img")
	require.NotContains(t, page, "\x1b")
	require.NotContains(t, page, "\u202e")
	require.NotContains(t, page, "http://")
	require.NotContains(t, page, "https://")
	require.Equal(t, 1, strings.Count(page, "<script>"))
}

// A page on 3,000 namespaces can be sent by mail.
func TestThePageIsSmall(t *testing.T) {
	var written bytes.Buffer
	require.NoError(t, writeHTML(&written, []Report{compute(contentsOf(3000))}))
	require.Less(t, written.Len(), 3<<20)
}

// What is unknown is not denied, nor what is not populated now.
func TestTheVerdictDeniesNothingUnknown(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Report{
		"Failed or drifted namespaces: none of 1.":                   {Summary: Summary{Namespaces: 1, Populated: 1}},
		"Failed or drifted namespaces: none known of 1. Unknown: 1.": {Summary: Summary{Namespaces: 1, Unknown: 1}},
		"Failed or drifted namespaces: none known of 1, but the cluster's policies fail. Unknown: 1.": {
			Summary: Summary{Namespaces: 1, Unknown: 1}, Findings: []Finding{{Severity: Failure}},
		},
		"Failed or drifted namespaces: none of 3. Not populated now: 2.": {Summary: Summary{Namespaces: 3, Pending: 2}},
		"Namespaces that need attention: 1 of 3 (1 failed, 0 drifted). Not populated now: 2.": {
			Summary: Summary{Namespaces: 3, Failed: 1, Pending: 2},
		},
		"Namespaces that need attention: 1 of 3 (1 failed, 0 drifted). Unknown: 2.": {
			Summary: Summary{Namespaces: 3, Failed: 1, Unknown: 2},
		},
	} {
		require.Equal(t, want, verdict(r))
	}
}
