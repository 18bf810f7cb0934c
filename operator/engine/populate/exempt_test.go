package populate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

var (
	settingsID = ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
	limitsID   = ObjectID{GroupKind: schema.GroupKind{Kind: "LimitRange"}, Name: "limits"}
)

// exempting returns an exemption of team-a from objects of a template, or from the whole template.
func exempting(template string, objects ...ObjectID) match.Exemptions {
	exemption := &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "team-a"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: template, Reason: "a test"},
	}
	for _, id := range objects {
		exemption.Spec.Objects = append(exemption.Spec.Objects,
			v1alpha1.ExemptObject{Group: id.Group, Kind: id.Kind, Name: id.Name})
	}
	return match.Exemptions{exemption}
}

// planExempt plans team-a with exemptions.
func planExempt(
	exemptions match.Exemptions, observed Observed, templates ...*v1alpha1.NamespaceTemplate,
) Plan {
	index := match.NewIndex(templates...)
	index.SetExemptions("team-a", exemptions)
	return NewPlan(Declare(render.NewCache(), teamA(), index.Match(teamA()), Inputs{Exemptions: exemptions}), index, observed)
}

// changeOf returns the only change of a plan with an ID.
func changeOf(t *testing.T, plan Plan, id ObjectID) Change {
	t.Helper()
	var found []Change
	for _, change := range plan.Changes {
		if change.ID() == id {
			found = append(found, change)
		}
	}
	require.Len(t, found, 1, "%s in %v", id, plan.Changes)
	return found[0]
}

func withKinds(template *v1alpha1.NamespaceTemplate, kinds ...schema.GroupKind) *v1alpha1.NamespaceTemplate {
	for _, kind := range kinds {
		template.Status.Kinds = append(template.Status.Kinds, v1alpha1.GroupKind(kind))
	}
	return template
}

func TestExemptObjectsAreLeftAlone(t *testing.T) {
	template := withKinds(templateOf(t, "a", settings, limits), settingsID.GroupKind, limitsID.GroupKind)
	declared := declare(teamA(), template).Objects[0]
	drifted := applied(t, declared, fieldpath.MakePathOrDie("data", "color"))
	adopted := with(applied(t, declared), func(o *metav1.PartialObjectMetadata) {
		o.Annotations[v1alpha1.AdoptedAnnotation] = "true"
	})
	unlabelled := foreign("settings", "")
	unlabelled.Labels = nil
	for name, test := range map[string]struct {
		observed Observed
		exists   bool
	}{
		"does not exist": {Observed{}, false},
		"as declared":    {Observed{Objects: []*metav1.PartialObjectMetadata{applied(t, declared)}}, true},
		"drifted":        {Observed{Objects: []*metav1.PartialObjectMetadata{drifted}}, true},
		"adopted":        {Observed{Objects: []*metav1.PartialObjectMetadata{adopted}}, true},
		"of a user":      {Observed{Objects: []*metav1.PartialObjectMetadata{foreign("settings", "a")}}, true},
		"without label":  {Observed{Others: []*metav1.PartialObjectMetadata{unlabelled}}, true},
		"lost":           {Observed{Lost: map[ObjectID]*metav1.PartialObjectMetadata{settingsID: drifted}}, false},
		"not readable":   {Observed{Unreadable: map[schema.GroupKind]error{settingsID.GroupKind: errors.New("forbidden")}}, false},
		"tampered": {
			Observed{
				Objects:  []*metav1.PartialObjectMetadata{applied(t, declared)},
				Tampered: map[types.UID]bool{"uid": true},
			}, true,
		},
	} {
		for _, authoritative := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				ruler := templateOf(t, "ruler")
				if authoritative {
					ruler.Spec.Authoritative = []v1alpha1.GroupKind{v1alpha1.GroupKind(settingsID.GroupKind)}
				}
				plan := planExempt(exempting("a", settingsID), test.observed, template, ruler)
				change := changeOf(t, plan, settingsID)
				require.Equal(t, LeaveAlone, change.Action)
				require.Equal(t, "is exempt (templateexemption/x): a test", change.Reason)
				require.Equal(t, "x", change.Exemption.Name)
				require.Equal(t, test.exists, change.Observed != nil)
				require.False(t, change.Differs())
				require.Equal(t, Create, changeOf(t, plan, limitsID).Action, "other objects are not exempt")
				findings := Findings(plan, Result{})
				require.Len(t, findings, 1)
				require.Equal(t, FindingExempt, findings[0].Reason)
				require.Equal(t, Exempt, findings[0].Severity)
				require.Empty(t, ExistingObjects(plan, Result{}))
			})
		}
	}
}

// An object that names the creator is not declared yet while the creator is unknown. If it is exempt, no template that is
// authoritative for its kind deletes it, and no RoleBinding of the template binds it.
func TestExemptObjectsThatCannotBeDeclaredYetAreLeftAlone(t *testing.T) {
	ofCreator := strings.Replace(settings, "settings}", `settings, annotations: {of: "$(CREATOR)"}}`, 1)
	require.NotEqual(t, settings, ofCreator)
	template := templateOf(t, "a", ofCreator)
	template.Spec.Authoritative = []v1alpha1.GroupKind{v1alpha1.GroupKind(settingsID.GroupKind)}
	unlabelled := foreign("settings", "")
	unlabelled.Labels = nil
	exemptions := exempting("a", settingsID)
	index := match.NewIndex(template)
	index.SetExemptions("team-a", exemptions)
	ns := teamA()
	delete(ns.Annotations, v1alpha1.CreatorAnnotation)
	declared := Declare(render.NewCache(), ns, index.Match(ns), Inputs{Exemptions: exemptions})
	require.Empty(t, declared.Objects)
	require.Empty(t, declared.Omitted)
	plan := NewPlan(declared, index, Observed{Others: []*metav1.PartialObjectMetadata{unlabelled}})
	change := changeOf(t, plan, settingsID)
	require.Equal(t, LeaveAlone, change.Action, change.Reason)
	require.NotNil(t, change.Exemption)
}

func TestExemptionsOfOtherTemplatesHaveNoEffect(t *testing.T) {
	red := "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red}}"
	a, b := templateOf(t, "a", settings), templateOf(t, "b", red)

	plan := planExempt(exempting("a", settingsID), Observed{}, a, b)
	require.Equal(t, []string{"b configmap/settings"}, idsOf(plan.Objects), "b overrides a anyway")

	plan = planExempt(exempting("b", settingsID), Observed{}, a, b)
	require.Equal(t, []string{"a configmap/settings"}, idsOf(plan.Objects), "the exemption does not concern a")
	require.Empty(t, plan.Overridden)

	plan = planExempt(exempting("c", settingsID), Observed{}, a)
	require.Equal(t, []string{"a configmap/settings"}, idsOf(plan.Objects))
	require.Empty(t, plan.Exempt)

	plan = planExempt(exempting("b"), Observed{}, a, b)
	require.Equal(t, []string{"a configmap/settings"}, idsOf(plan.Objects), "exempt from b as a whole")
}

func TestExemptObjectsAreNotPruned(t *testing.T) {
	before := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	observed := Observed{Objects: []*metav1.PartialObjectMetadata{applied(t, before)}}
	dropped := withKinds(templateOf(t, "a", limits), settingsID.GroupKind)
	deleted := withKinds(templateOf(t, "a", settings), settingsID.GroupKind)
	deleted.Spec.DeletionPolicy, deleted.DeletionTimestamp = v1alpha1.DeletionDelete, &metav1.Time{}
	for name, template := range map[string]*v1alpha1.NamespaceTemplate{
		"no longer declared": dropped, "the template is being deleted": deleted,
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, Prune, changeOf(t, planExempt(nil, observed, template), settingsID).Action)
			for _, exemptions := range []match.Exemptions{exempting("a", settingsID), exempting("a")} {
				require.Equal(t, LeaveAlone,
					changeOf(t, planExempt(exemptions, observed, template), settingsID).Action)
			}
			require.Equal(t, Prune,
				changeOf(t, planExempt(exempting("b", settingsID), observed, template), settingsID).Action)
			// Another template declares the object, and the namespace is exempt from that one.
			plan := planExempt(exempting("b", settingsID), observed, template, templateOf(t, "b", settings))
			require.True(t, slices.ContainsFunc(plan.Changes, func(change Change) bool {
				return change.ID() == settingsID && change.Action == Prune
			}))
		})
	}
}

// An exemption names objects of templates. It does not protect what a user creates.
func TestExemptionsDoNotProtectUndeclaredObjects(t *testing.T) {
	ruler := templateOf(t, "a", limits)
	ruler.Spec.Authoritative = []v1alpha1.GroupKind{v1alpha1.GroupKind(settingsID.GroupKind)}
	unlabelled := foreign("settings", "")
	unlabelled.Labels = nil
	for name, observed := range map[string]Observed{
		"without label": {Others: []*metav1.PartialObjectMetadata{unlabelled}},
		"with label":    {Objects: []*metav1.PartialObjectMetadata{foreign("settings", "a")}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, Prune,
				changeOf(t, planExempt(exempting("a", settingsID), observed, ruler), settingsID).Action)
		})
	}
}

func TestRoleBindingsOfExemptRoles(t *testing.T) {
	t.Run("are left alone with the Role", func(t *testing.T) {
		plan := planExempt(exempting("a", workerID), Observed{}, templateOf(t, "a", worker, workers, viewers))
		require.Equal(t, []string{"a:RoleBinding/viewers"}, ids(plan.Objects))
		change := changeOf(t, plan, workersID)
		require.Equal(t, LeaveAlone, change.Action)
		require.Contains(t, change.Reason, "binds role.rbac.authorization.k8s.io/worker, which is exempt")
	})
	t.Run("are withheld if another template declares the Role", func(t *testing.T) {
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			exempt, other := templateOf(t, order[0], worker, workers), templateOf(t, order[1], reader)
			templates := []*v1alpha1.NamespaceTemplate{exempt, other}
			plan := planExempt(exempting(order[0], workerID), Observed{}, templates...)
			require.Equal(t, []string{order[1] + ":Role/worker"}, ids(plan.Objects))
			require.Len(t, plan.Withheld, 1)
			require.Contains(t, plan.Withheld[0].Reason(), "the namespace is exempt from")
		}
	})
	t.Run("of other templates are not concerned", func(t *testing.T) {
		plan := planExempt(exempting("a", workerID), Observed{}, templateOf(t, "a", worker),
			templateOf(t, "b", workers))
		require.Equal(t, []string{"b:RoleBinding/workers"}, ids(plan.Objects))
	})
}

func TestExemptNamespaceMetadata(t *testing.T) {
	template := templateOf(t, "a", settings)
	template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "gold"}}
	for name, exemptions := range map[string]match.Exemptions{
		"by kind":  exempting("a", ObjectID{GroupKind: render.NamespaceKind.GroupKind(), Name: "team-a"}),
		"as whole": exempting("a"),
	} {
		t.Run(name, func(t *testing.T) {
			plan := planExempt(exemptions, Observed{}, template)
			require.Empty(t, plan.Metadata)
			index := match.NewIndex(template)
			index.SetExemptions("team-a", exemptions)
			ns := teamA()
			ns.Labels = map[string]string{"tier": "gold"}
			key := render.MetadataKey{Field: render.Labels, Key: "tier"}
			declared := Declare(render.NewCache(), ns, index.Match(ns), Inputs{Exemptions: exemptions})
			change := undeclaredValue(declared, index, key, RecordedValue{Template: "a", Value: digest("gold")})
			require.Equal(t, LeaveAlone, change.Action, change.Reason)
		})
	}
}
