package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

func namespaceWith(name string, changes ...populate.Change) survey.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return survey.Namespace{Declared: populate.Declared{Namespace: ns}, Changes: changes}
}

func changeOf(action populate.Action, name string) populate.Change {
	return populate.Change{
		Action: action, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: name, Template: "web",
		Reason: "of a reason",
	}
}

// fieldOf returns the difference of a field that has the value 2 afterwards.
func fieldOf(name string, from any, manager string) field {
	return newField(fields.Compare(map[string]any{name: from}, map[string]any{name: "2"})[0], manager)
}

func notes(write func(cli.Session)) string {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	write(cli.NewSession(streams))
	return errOut.String()
}

func TestReport(t *testing.T) {
	anySession := cli.NewSession(genericiooptions.NewTestIOStreamsDiscard())
	drifted := func(change populate.Change) populate.Change {
		change.Drifted = true
		return change
	}
	same := newReport(slices.Values([]survey.Namespace{
		namespaceWith("a", changeOf(populate.Unchanged, "one"), changeOf(populate.LeaveAlone, "two")),
	}), nil)
	require.Zero(t, same.Summary.DifferentObjects)
	require.Empty(t, same.Unknown)
	require.Equal(t, 1, same.Summary.UnchangedObjects)
	require.Empty(t, same.table(anySession, true, false).Rows)
	require.Len(t, same.table(anySession, true, true).Rows, 1)
	require.Equal(t, "no differences in 1 namespace\n", notes(same.noteSummary))

	different := newReport(slices.Values([]survey.Namespace{
		namespaceWith("a", changeOf(populate.Create, "one"), drifted(changeOf(populate.Configure, "two")),
			changeOf(populate.Prune, "three")),
		namespaceWith("b", drifted(changeOf(populate.LeaveAlone, "four")), changeOf(populate.Unknown, "five")),
		namespaceWith("c"),
	}), []error{errors.New("b is forbidden"), errors.New("b is forbidden")})
	require.Equal(t, 4, different.Summary.DifferentObjects)
	require.Equal(t, []string{"b is forbidden"}, different.Unknown)
	different.Items[1].Fields = []field{fieldOf("x", "1", "kubectl-patch"), fieldOf("y", "1", "nstpl")}
	different.Items[0].Fails = "configmaps is forbidden: exceeded quota"
	different.summarize()
	var rows []string
	for _, row := range different.table(anySession, true, false).Rows {
		rows = append(rows, row[0]+" "+row[1]+" "+row[3]+" "+row[4]+": "+row[5])
	}
	require.Equal(t, []string{
		"a configmap/one create : would fail: configmaps is forbidden: exceeded quota",
		"a configmap/two configure x 1 -> 2 (set by kubectl-patch): of a reason",
		"a configmap/two configure y 1 -> 2: of a reason",
		"a configmap/three prune : of a reason", "b configmap/four leave alone : of a reason",
		"b configmap/five unknown : of a reason",
	}, rows)
	require.Equal(t,
		"4 differences in 2 of 3 namespaces: 1 configured, 1 created, 1 pruned, 1 left alone; 1 would fail\n",
		notes(different.noteSummary))
}

func TestReportAsJSON(t *testing.T) {
	r := newReport(slices.Values([]survey.Namespace{namespaceWith("a", changeOf(populate.Configure, "one"))}), nil)
	r.Items[0].Fields = []field{fieldOf("x", nil, "kubectl-patch")}
	r.Items[0].DryRunNamespace = "a"
	added := fields.Compare(nil, map[string]any{"y": int64(1)})
	r.Items[0].Fields = append(r.Items[0].Fields, newField(added[0], ""))
	var text bytes.Buffer
	require.NoError(t, output.JSON(&text, r))
	require.JSONEq(t, `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "DiffReport",
		"summary": {"namespaces": 1, "differentNamespaces": 1, "differentObjects": 1, "unchangedObjects": 0,
			"actions": {"Configure": 1}, "failing": 0},
		"items": [{"namespace": "a", "object": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "one"}, "template": "web", "action": "Configure",
			"message": "of a reason", "different": true, "dryRunNamespace": "a", "fields": [
				{"field": "x", "from": null, "to": "2", "manager": "kubectl-patch"}, {"field": "y", "to": 1}]}]}`,
		text.String())
	require.True(t, json.Valid(text.Bytes()))
}

func TestActions(t *testing.T) {
	exists := &metav1.PartialObjectMetadata{}
	for want, change := range map[action]populate.Change{
		actionCreate:     {Action: populate.Create},
		actionAdopt:      {Action: populate.Create, Observed: exists},
		actionConfigure:  {Action: populate.Configure, Observed: exists},
		actionPrune:      {Action: populate.Prune, Observed: exists},
		actionDelete:     {Action: populate.Prune, Observed: exists, Undeclared: true},
		actionEmpty:      {Action: populate.Empty, Observed: exists},
		actionLeaveAlone: {Action: populate.LeaveAlone},
		actionUnknown:    {Action: populate.Unknown},
	} {
		require.Equal(t, want, actionOf(change))
	}
	require.Equal(t, actionConfigure, actionOf(populate.Change{Action: populate.Create, Observed: exists, Populated: true}),
		"what replaces a populated object is not adopted")
	require.Equal(t, "leave alone", actionLeaveAlone.words())
	require.Equal(t, "adopted", actionAdopt.done())
}

func TestGroups(t *testing.T) {
	var namespaces []survey.Namespace
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		namespaces = append(namespaces, namespaceWith(name, changeOf(populate.Configure, "one"),
			changeOf(populate.Create, "two")))
	}
	namespaces = append(namespaces, namespaceWith("f", changeOf(populate.Prune, "three")))
	r := newReport(slices.Values(namespaces), nil)
	for _, i := range r.Items {
		if i.change.Action == populate.Configure {
			i.Fields = []field{fieldOf("x", "1", ""), fieldOf("y", "1", "kubectl-edit")}
			i.DryRunNamespace = "b"
		}
	}
	r.Items[4].Fields = nil                         // configmap/one in c
	r.Items[6].Fails, r.Items[8].Fails = "no", "no" // in d and e
	r.Items[9].Action = actionReplace               // configmap/two in e
	r.Items[9].Fields = []field{fieldOf("z", "1", "")}
	var lines, examples []string
	groups := r.groups(false)
	for _, g := range groups {
		lines = append(lines, g.lines()...)
		examples = append(examples, g.example().Namespace+" "+g.example().Object)
	}
	require.Equal(t, []string{
		"in 2 namespaces (a, b): configmap/one x 1 -> 2",
		"in 2 namespaces (a, b): configmap/one y 1 -> 2 (set by kubectl-edit)",
		"in 4 namespaces (a, b, c and 1 more): configmap/two created",
		"in 2 namespaces (d, e): configmap/one x 1 -> 2 (would fail)",
		"in 2 namespaces (d, e): configmap/one y 1 -> 2 (set by kubectl-edit) (would fail)",
	}, lines)
	require.Equal(t, []string{
		"b configmap/one", "a configmap/two", "c configmap/one", "d configmap/one", "e configmap/two",
		"f configmap/three",
	}, examples)
	require.Equal(t, "d, e: configmap/one would fail: no\n"+
		"e: configmap/two cannot be updated in place, so it would be deleted and recreated\n",
		notes(func(s cli.Session) { noteFailures(s, groups) }))
	require.Contains(t, notes(r.noteReasons),
		"a, b, c and 2 more: configmap/one: configure (template web): of a reason\n")

	full := r.groups(true)
	require.Len(t, full, 11)
	for _, g := range full {
		require.Empty(t, g.lines())
	}
}

// TestRefusalHidesValuesOfSecrets is a test because some errors of the API server contain the value of a field.
func TestRefusalHidesValuesOfSecrets(t *testing.T) {
	secret := decoded(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
		"data": {"a": "aHVudGVyMg==", "empty": ""}, "stringData": {"b": "swordfish", "c": "x\"y"}}`)
	const hidden = "BadRequest (the message contains a value of the Secret and is not shown)"
	for message, want := range map[string]string{
		"illegal base64 data at input byte 4": "illegal base64 data at input byte 4",
		`expected string, got "hunter2"`:      hidden,
		`expected string, got "x\"y"`:         hidden,
		`expected string, got "swordfish"`:    hidden,
		`expected string, got "aHVudGVyMg=="`: hidden,
	} {
		for _, sides := range []survey.Sides{{Live: secret}, {Stored: secret}} {
			sides.Refusal = apierrors.NewBadRequest(message)
			require.Equal(t, want, refusal(sides))
		}
	}
	configMap := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "x"}}`)
	for message, want := range map[string]string{
		"x": "x",
		"failed to create typed patch object (a/c; v1, Kind=ConfigMap): .date: field not declared in schema": "" +
			".date: field not declared in schema",
		"failed to convert new object (a/c; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured " +
			"object to /v1, Kind=ConfigMap: quantities must match": "quantities must match",
	} {
		require.Equal(t, want, refusal(survey.Sides{Stored: configMap, Refusal: apierrors.NewBadRequest(message)}))
	}
}

func TestTrialsAreOfEqualContents(t *testing.T) {
	live := func(namespace, text string) string {
		return contentHash(decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c",
			"namespace": "`+namespace+`", "uid": "`+namespace+`", "resourceVersion": "1"`+text+`}`))
	}
	require.Equal(t, live("a", `}, "data": {"x": "1"}`), live("b", `}, "data": {"x": "1"}`))
	require.Equal(t, live("a", `}, "status": {"x": "1"}`), live("b", `}, "status": {"x": "2"}`))
	require.NotEqual(t, live("a", `}, "data": {"x": "1"}`), live("a", `}, "data": {"x": "2"}`))
	require.NotEqual(t, live("a", `}`), live("a", `, "labels": {"x": "1"}}`))
	managed := func(manager, time string) string {
		return live("a", `, "managedFields": [{"manager": "`+manager+`", "time": "`+time+`", "operation": "Update",
			"fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}`)
	}
	require.Equal(t, managed("x", "2020-01-01T00:00:00Z"), managed("x", "2021-01-01T00:00:00Z"))
	require.NotEqual(t, managed("x", "2020-01-01T00:00:00Z"), managed("y", "2020-01-01T00:00:00Z"))
}

func TestRecordsOfTheOperatorAreNotChangesOfAnAdoptedObject(t *testing.T) {
	live := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}`)
	stored := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c",
		"labels": {"policy/namespace-template-name": "web"}, "annotations": {"policy.nstpl.dev/applied-hash": "x",
		"policy.nstpl.dev/adopted": "true"}}, "data": {"a": "1"}}`)
	changed := func(a action) (names []string) {
		all, err := changedFields(a, survey.Sides{Live: live, Stored: stored})
		require.NoError(t, err)
		for _, f := range all {
			names = append(names, f.Field)
		}
		return names
	}
	require.Empty(t, changed(actionAdopt))
	require.Equal(t, []string{"metadata.annotations", "metadata.labels"}, changed(actionConfigure))
	require.NoError(t, unstructured.SetNestedField(stored.Object, "2", "data", "a"))
	require.Equal(t, []string{"data.a"}, changed(actionAdopt))
	require.Equal(t, []string{"data.a"}, changed(actionConfigure))
	require.NotEmpty(t, stored.GetLabels(), "the arguments must not be changed")
}

// The same change in two clusters is two rows, and what was not compared in one of them is not hidden by the other.
func TestReportsOnSeveralClusters(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	in := func(context string, r *report) cli.Reply[*report] {
		return cli.Reply[*report]{Source: cli.Source{Session: session.ForContext(context), Context: context}, Value: r}
	}
	of := func(readErrs ...error) *report {
		ns := namespaceWith("a", changeOf(populate.Create, "one"))
		return newReport(slices.Values([]survey.Namespace{ns}), readErrs)
	}
	require.Nil(t, merge([]cli.Reply[*report]{in("test", nil)}))
	alone := of()
	require.Same(t, alone, merge([]cli.Reply[*report]{in("", alone)}))

	production := of(errors.New("b is forbidden: run 'kubectl a'"))
	production.Items[0].Reason = "see 'kubectl b'"
	production.NotPopulated = []notPopulated{{Message: "see 'kubectl c'"}}
	all := merge([]cli.Reply[*report]{in("test", of()), in("closed", nil), in("production", production)})
	require.Equal(t, []string{`context "production": b is forbidden: run 'kubectl a'`}, all.Unknown)
	require.Equal(t, summary{
		Namespaces: 2, DifferentNamespaces: 2, DifferentObjects: 2, Actions: map[action]int{actionCreate: 2},
	}, all.Summary)
	table := all.table(session, false, false)
	require.Equal(t, "Context", table.Columns[0])
	require.Len(t, table.Rows, 2)
	require.Equal(t, []string{"production", "a", "configmap/one"}, table.Rows[1][:3])
	require.Equal(t, "Namespace", alone.table(session, false, false).Columns[0])
}

// What is printed about a cluster must not run in another one. Programs read the context in a field of its own.
func TestCommandsAboutSeveralClustersSelectTheContext(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	r := newReport(slices.Values([]survey.Namespace{
		namespaceWith("a", changeOf(populate.Create, "one"), changeOf(populate.LeaveAlone, "two")),
	}), []error{errors.New("b is forbidden: run 'kubectl a'")})
	r.Items[0].Reason, r.Items[0].Estimate, r.Items[1].Reason = "see 'kubectl b'", "of 'kubectl c'", "see 'kubectl d'"
	r.NotPopulated = []notPopulated{{Message: "see 'kubectl e'", Namespaces: []string{"c"}}}
	reply := cli.Reply[*report]{Source: cli.Source{Session: session.ForContext("test"), Context: "test"}, Value: r}
	all := merge([]cli.Reply[*report]{reply})
	require.Equal(t, "see 'kubectl b --context test'", all.table(session, false, false).Rows[0][6])
	require.Equal(t, "see 'kubectl b'", all.Items[0].Reason)
	noteUnknown([]cli.Reply[*report]{{}, reply})
	noteEstimates(session, all.groups(false))
	all.noteNotPopulated(session)
	all.noteLeftAlone(session, false)
	require.Equal(t, `context "test": not compared: b is forbidden: run 'kubectl a --context test'
context "test": a: configmap/one is not shown: of 'kubectl c --context test'
context "test": not populated: c: see 'kubectl e --context test'
context "test": left alone: configmap/two in a: see 'kubectl d --context test'
`, errOut.String())
}

// A selector that matches namespaces in one of several clusters is not misspelled.
func TestSelectorThatMatchesInOneOfSeveralClusters(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	of := func(context string, value *report, err error) cli.Reply[*report] {
		return cli.Reply[*report]{
			Source: cli.Source{Session: session.ForContext(context), Context: context}, Value: value, Err: err,
		}
	}
	unmatched, closed := cli.UnmatchedError("a=b"), errors.New("closed")
	alone := []cli.Reply[*report]{of("", nil, unmatched)}
	noteUnmatched(alone)
	require.Equal(t, unmatched, alone[0].Err)
	none := []cli.Reply[*report]{of("one", nil, unmatched), of("two", nil, unmatched)}
	noteUnmatched(none)
	require.Equal(t, unmatched, none[0].Err)
	require.Equal(t, unmatched, none[1].Err)
	require.Empty(t, errOut.String())

	some := []cli.Reply[*report]{of("one", nil, unmatched), of("two", &report{}, nil), of("three", nil, closed)}
	noteUnmatched(some)
	require.NoError(t, some[0].Err)
	require.Equal(t, closed, some[2].Err)
	require.Equal(t, `context "one": no namespace matches --selector "a=b": `+
		"run 'kubectl get namespaces --show-labels --context one' to list their labels\n", errOut.String())
}

// A template without a finalizer does not exist any more once it is deleted, so what deletes objects of templates that
// do not exist is planned. Another one remains while the operator prunes its objects.
func TestTemplatesThatAreDeleted(t *testing.T) {
	template := func(name string, policy v1alpha1.DeletionPolicy, finalizers ...string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		template.Spec.DeletionPolicy = policy
		return template
	}
	d := diff{deleted: []string{"orphans", "prunes", "held"}, disabled: []string{"disabled"}}
	remaining, gone := d.withoutRemoved([]*v1alpha1.NamespaceTemplate{
		template("disabled", v1alpha1.DeletionOrphan), template("held", v1alpha1.DeletionOrphan, "example.com/audit"),
		template("orphans", v1alpha1.DeletionOrphan), template("other", v1alpha1.DeletionOrphan),
		template("prunes", v1alpha1.DeletionDelete),
	})
	var states []string
	for _, left := range remaining {
		states = append(states, left.Name+": "+match.DisabledReason(left))
	}
	require.Equal(t, []string{
		"disabled: the template is disabled (annotation policy/namespace-template-apply: disable)",
		"held: the template is being deleted", "other: ", "prunes: the template is being deleted",
	}, states)
	require.Len(t, gone, 1)
	require.Equal(t, "orphans", gone[0].Name)

	stays := changeOf(populate.LeaveAlone, "one")
	stays.Template, stays.Reason = "orphans", "template orphans does not exist"
	r := newReport(slices.Values([]survey.Namespace{namespaceWith("a", stays)}), nil)
	r.nameOrphaned(gone)
	require.Equal(t, "template orphans is deleted; deletionPolicy is Orphan", r.Items[0].Reason)
}
