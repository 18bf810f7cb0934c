package populate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestOnlyCorrectionsArePostponed(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	plan := Plan{Changes: []Change{
		{Action: Configure, Kind: kind, Name: "fought", Template: "t", Drifted: true, Reason: ".data changed"},
		{Action: Create, Kind: kind, Name: "deleted", Template: "t", Drifted: true},
		{Action: Prune, Kind: kind, Name: "undeclared", Template: "t", Undeclared: true},
		{Action: Configure, Kind: kind, Name: "edited", Template: "t", Reason: "its declaration changed"},
		{Action: LeaveAlone, Kind: kind, Name: "reported", Template: "t", Drifted: true},
		{Action: Create, Kind: kind, Name: "missing", Template: "t"},
	}}
	all := plan.Postpone(func(Change) bool { return true })
	var postponed []string
	for _, change := range all.Changes {
		if change.Postponed {
			postponed = append(postponed, change.Name)
			require.Equal(t, LeaveAlone, change.Action)
		}
	}
	require.Equal(t, []string{"fought", "deleted", "undeclared"}, postponed)
	require.Equal(t, Configure, plan.Changes[0].Action, "the plan itself stays as it is")
	for _, finding := range Findings(all, Result{}) {
		require.Equal(t, "reported", finding.Object.Name, "the finding about the fight says what is postponed")
	}
	none := plan.Postpone(func(Change) bool { return false })
	require.Equal(t, plan, none)
}

// The API server records a HorizontalPodAutoscaler and kubectl scale with the subresource scale.
func TestAClientThatScalesHasAName(t *testing.T) {
	t.Parallel()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1alpha1.TemplateNameLabel: "t"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply},
			{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale"},
			{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
		},
	}}
	require.Equal(t, "kube-controller-manager", Change{Observed: object}.ChangedBy())
	require.Equal(t, ".spec.replicas changed by kube-controller-manager", lostReason([]string{".spec.replicas"}, object))
	require.False(t, isWrittenByOthers(object), "a number of replicas is in the way of no declaration")
	object.ManagedFields[1].Subresource = "resize"
	require.True(t, isWrittenByOthers(object))
}

func TestAFightIsReadBackFromTheCondition(t *testing.T) {
	change := Change{
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Name: "settings", Template: "t",
		Observed: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "rival", Operation: metav1.ManagedFieldsOperationUpdate},
			{Manager: "kubelet", Subresource: "status"},
		}}},
	}
	finding := Fought(change, change.ChangedBy(), 5*time.Minute)
	require.Equal(t, "configmap/settings: is changed again and again by rival, so it is corrected less and less often, "+
		"down to every 5m: stop that client, declare what it writes, or set driftPolicy: Report", finding.String())
	reported := ReportedFindings(&corev1.NamespaceCondition{
		Status: corev1.ConditionTrue, Message: "1 object of t; " + finding.String(),
	})
	require.Len(t, reported, 1)
	require.Equal(t, FindingFought, reported[0].Reason)
	require.Equal(t, "configmap/settings", reported[0].Object)
	require.Contains(t, Fought(Change{}, "", time.Minute).Message, "by another client,")
}

// Labels of the namespace that another client sets again and again are corrected at most once a second. The others are
// written meanwhile.
func TestCorrectionsOfLabelsOfTheNamespaceArePostponed(t *testing.T) {
	key := func(name string) render.MetadataKey { return render.MetadataKey{Field: render.Labels, Key: name} }
	template := &v1alpha1.NamespaceTemplate{}
	template.Name = "t"
	value := func(name string, action Action, isDrifted bool) ValueChange {
		return ValueChange{MetadataKey: key(name), Action: action, Template: "t", Drifted: isDrifted,
			Declared: &DeclaredValue{key(name), "v", template}}
	}
	ns := teamA()
	metadata := &MetadataChange{namespace: ns, Values: []ValueChange{
		value("fought", Configure, true), value("new", Create, false), value("reported", LeaveAlone, true),
	}}
	plan := Plan{Declared: Declared{Namespace: ns}, Changes: []Change{metadata.change()}}
	require.True(t, plan.Changes[0].Protects())
	postponed := plan.Postpone(func(Change) bool { return true }).Changes[0]
	require.True(t, postponed.Postponed)
	for _, part := range postponed.Parts() {
		require.Equal(t, part.Subject().Value == key("fought"), part.Postponed)
	}
	require.Equal(t, map[string]any{"new": "v"}, postponed.Metadata.patch()[render.Labels])
	findings := metadataFindings(postponed, nil, true)
	require.Len(t, findings, 1, "the finding about the fight says what is postponed")
	require.Contains(t, findings[0].Message, "reported")
	corrected := Outcome{Change: plan.Changes[0]}.Corrected()
	require.Len(t, corrected, 1)
	require.Equal(t, Subject{Object: namespaceID(ns), Value: key("fought")}, corrected[0].Subject())
	require.Empty(t, Outcome{Change: plan.Changes[0], Failure: &Failure{}}.Corrected())
	require.Empty(t, Outcome{Change: postponed}.Corrected())
}

// One change is about the labels of all templates. The finding about one label has the template of that label.
func TestAFightOverALabelIsReadBackFromTheCondition(t *testing.T) {
	t.Parallel()
	ns := teamA()
	value := func(template string) ValueChange {
		return ValueChange{
			MetadataKey: render.MetadataKey{Field: render.Labels, Key: "of-" + template}, Action: Configure,
			Template: template,
		}
	}
	change := (&MetadataChange{namespace: ns, Values: []ValueChange{value("a"), value("b")}}).change()
	require.Equal(t, "a,b", change.Template)
	parts := change.Parts()
	require.Len(t, parts, 2)
	finding := Fought(parts[1], "rival", time.Second)
	require.Equal(t, "b", finding.Template)
	require.Equal(t, "namespace/team-a: label of-b is changed again and again by rival, so it is corrected less and less "+
		"often, down to every 1s: stop that client, declare what it writes, or set driftPolicy: Report", finding.String())
	reported := ReportedFindings(&corev1.NamespaceCondition{Status: corev1.ConditionTrue, Message: finding.String()})
	require.Len(t, reported, 1)
	require.Equal(t, FindingFought, reported[0].Reason)
}

// A user must not gain time by a fight over what restricts him, or over a grant.
func TestProtects(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupKind]bool{
		{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: true,
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:       true,
		{Kind: "ResourceQuota"}:                                   true,
		{Kind: "ConfigMap"}:                                       false,
	} {
		require.Equal(t, want, Change{Action: Configure, Kind: kind.WithVersion("v1")}.Protects(), kind)
		require.True(t, Change{Action: Prune, Kind: kind.WithVersion("v1")}.Protects(), kind)
	}
}
