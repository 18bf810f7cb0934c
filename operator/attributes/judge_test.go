package attributes_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// clusterRule returns a ClusterProtectedAttribute. The text has the kind, the name, the values and the role, such as
// "label env prod,staging deployer". A star means every value, and ! at the end means guardDeletion.
func clusterRule(t *testing.T, text string) v1alpha1.ClusterProtectedAttribute {
	t.Helper()
	return v1alpha1.ClusterProtectedAttribute{
		ObjectMeta:    metav1.ObjectMeta{Name: strings.ReplaceAll(text, " ", "-")},
		AttributeRule: rule(t, text, v1alpha1.ClusterRoleKind),
	}
}

// namespaceRule returns a ProtectedAttribute, such as "team-a: label env * deployer".
func namespaceRule(t *testing.T, text string) v1alpha1.ProtectedAttribute {
	t.Helper()
	namespace, text, _ := strings.Cut(text, ": ")
	return v1alpha1.ProtectedAttribute{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: strings.ReplaceAll(text, " ", "-")},
		AttributeRule: rule(t, text, v1alpha1.RoleKind),
	}
}

func rule(t *testing.T, text, roleKind string) v1alpha1.AttributeRule {
	t.Helper()
	text, guards := strings.CutSuffix(text, "!")
	parts := strings.Fields(text)
	require.Len(t, parts, 4, text)
	r := v1alpha1.AttributeRule{
		AttributeKind: v1alpha1.LabelAttribute, AttributeName: parts[1],
		RoleRef: v1alpha1.RoleReference{Kind: roleKind, Name: parts[3]}, GuardDeletion: guards,
	}
	if parts[0] == "annotation" {
		r.AttributeKind = v1alpha1.AnnotationAttribute
	}
	if parts[2] != "*" {
		r.ProtectedValues = strings.Split(parts[2], ",")
	}
	return r
}

func rules(t *testing.T, texts ...string) *attributes.Rules {
	t.Helper()
	var cluster []v1alpha1.ClusterProtectedAttribute
	var namespaced []v1alpha1.ProtectedAttribute
	for _, text := range texts {
		if strings.Contains(text, ":") {
			namespaced = append(namespaced, namespaceRule(t, text))
		} else {
			cluster = append(cluster, clusterRule(t, text))
		}
	}
	return attributes.NewRules(cluster, namespaced)
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var found map[string]any
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &found))
	return found
}

func holder(roles string) func(v1alpha1.RoleReference) bool {
	return func(role v1alpha1.RoleReference) bool { return slices.Contains(strings.Fields(roles), role.Name) }
}

const (
	bare    = `{metadata: {name: a}}`
	other   = `{metadata: {name: a, labels: {other: x}, annotations: {other: x}}}`
	prod    = `{metadata: {name: a, labels: {env: prod}}}`
	staging = `{metadata: {name: a, labels: {env: staging}}}`
	dev     = `{metadata: {name: a, labels: {env: dev}}}`
	empty   = `{metadata: {name: a, labels: {env: ""}}}`
	noted   = `{metadata: {name: a, annotations: {env: prod}}}`
)

func TestJudgeRequiresTheRoleOfARuleThatCoversTheValues(t *testing.T) {
	t.Parallel()
	const denied = "denied"
	for name, test := range map[string]struct {
		rules     []string
		namespace string
		old, new  string
		holds     string
		// want is a part of the violation, or empty if the change is allowed.
		want string
	}{
		"an attribute without a rule is allowed": {nil, "team-a", "", prod, "", ""},
		"another label is allowed":               {[]string{"label env * a"}, "team-a", "", other, "", ""},
		"creating with the label needs the role": {
			[]string{"label env * a"}, "team-a", "", prod, "",
			`set label env of X to "prod": ask for a binding to ClusterRole a (ClusterProtectedAttribute label-env-*-a)`,
		},
		"a holder may create with the label":              {[]string{"label env * a"}, "team-a", "", prod, "a", ""},
		"an annotation of the same name is not protected": {[]string{"label env * a"}, "team-a", "", noted, "", ""},
		"a protected annotation needs the role": {
			[]string{"annotation env * a"}, "team-a", "", noted, "", "set annotation env",
		},
		"a holder may set the annotation":          {[]string{"annotation env * a"}, "team-a", "", noted, "a", ""},
		"cluster-scoped objects are protected too": {[]string{"label env * a"}, "", "", prod, "", denied},
		"an unchanged label is allowed": {
			[]string{"label env * a"}, "team-a", prod,
			`{metadata: {name: a, labels: {env: prod}, annotations: {x: y}}, status: {a: b}}`, "", "",
		},
		"adding the label needs the role": {
			[]string{"label env * a"}, "team-a", bare, prod, "", `set label env of X to "prod"`,
		},
		"adding an empty label needs the role": {[]string{"label env * a"}, "team-a", bare, empty, "", `to ""`},
		"removing the label needs the role": {
			[]string{"label env * a"}, "team-a", prod, bare, "", `remove label env of X, which is "prod"`,
		},
		"a holder may remove the label": {[]string{"label env * a"}, "team-a", prod, bare, "a", ""},
		"changing the label needs the role": {
			[]string{"label env * a"}, "team-a", prod, dev, "", `change label env of X from "prod" to "dev"`,
		},
		"a holder may change the label": {[]string{"label env * a"}, "team-a", prod, dev, "a", ""},
		"emptying the label needs the role": {
			[]string{"label env * a"}, "team-a", prod, empty, "", `from "prod" to ""`,
		},
		"a holder may set a listed value": {[]string{"label env prod a"}, "team-a", "", prod, "a", ""},
		"a listed value needs the role": {
			[]string{"label env prod a"}, "team-a", "", prod, "b", "ask for a binding to ClusterRole a",
		},
		"a holder may not set a value that is not listed": {
			[]string{"label env prod a"}, "team-a", "", dev, "a",
			`no rule allows this value for any role: there are rules for "prod"`,
		},
		"a value that is not listed is denied without the role too": {
			[]string{"label env prod a"}, "team-a", "", dev, "", "no rule allows this value",
		},
		"a holder may change a listed value to a listed one": {
			[]string{"label env prod,staging a"}, "team-a", prod, staging, "a", "",
		},
		"a holder may not change a listed value to one that is not": {
			[]string{"label env prod,staging a"}, "team-a", prod, dev, "a", "no rule allows this value",
		},
		"a holder may not change a value that is not listed to a listed one": {
			[]string{"label env prod,staging a"}, "team-a", dev, prod, "a", "no rule allows this value",
		},
		"a holder may remove a listed value": {[]string{"label env prod a"}, "team-a", prod, bare, "a", ""},
		"a holder may not remove a value that is not listed": {
			[]string{"label env prod a"}, "team-a", dev, bare, "a", "no rule allows this value",
		},
		"the role of one of two rules is enough": {
			[]string{"label env prod a", "label env prod b"}, "team-a", "", prod, "b", "",
		},
		"the message names the roles of both rules": {
			[]string{"label env prod a", "label env prod b"}, "team-a", "", prod, "c",
			"ClusterRole a (ClusterProtectedAttribute label-env-prod-a) or to ClusterRole b",
		},
		"a role allows the values of its own rule only": {[]string{"label env prod a", "label env dev b"}, "team-a", "",
			prod, "b",
			"ask for a binding to ClusterRole a"},
		"a rule without values covers every value": {[]string{"label env prod a", "label env * b"}, "team-a", prod, dev,
			"b",
			""},
		"one rule must cover the old and the new value": {[]string{"label env prod a", "label env dev b"}, "team-a",
			prod, dev, "a b",
			"no single rule covers both values: have a user with the role for the old value remove it"},
		"a ProtectedAttribute protects its namespace": {
			[]string{"team-a: label env * a"}, "team-a", "", prod, "",
			"Role a (ProtectedAttribute team-a/label-env-*-a)",
		},
		"a holder in the namespace may set the label": {
			[]string{"team-a: label env * a"}, "team-a", "", prod, "a", "",
		},
		"a ProtectedAttribute does not protect other namespaces": {
			[]string{"team-a: label env * a"}, "team-b", "", prod, "", "",
		},
		"a ProtectedAttribute does not protect cluster-scoped objects": {
			[]string{"team-a: label env * a"}, "", "", prod, "", "",
		},
		"a ProtectedAttribute allows what a cluster rule protects": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", prod, "b", "",
		},
		"a ProtectedAttribute allows its own values only": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", dev, "b",
			"ask for a binding to ClusterRole a",
		},
		"the cluster rule allows beside a ProtectedAttribute": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", dev, "a", "",
		},
		"a ProtectedAttribute of another namespace allows nothing": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-b", "", prod, "b",
			"ask for a binding to ClusterRole a (",
		},
		"deleting the object is allowed": {[]string{"label env * a"}, "team-a", prod, "", "", ""},
		"guardDeletion: deleting needs the role": {
			[]string{"label env * a!"}, "team-a", prod, "", "", "remove label env",
		},
		"guardDeletion: deleting without the label is allowed": {
			[]string{"label env * a!"}, "team-a", other, "", "", "",
		},
		"guardDeletion: a holder may delete": {[]string{"label env * a!"}, "team-a", prod, "", "a", ""},
		"guardDeletion: a holder may not delete another value": {
			[]string{"label env dev a!"}, "team-a", prod, "", "a", "no rule allows this value",
		},
		"guardDeletion: the role of another rule is enough": {
			[]string{"label env * a!", "label env prod b"}, "team-a", prod, "", "b", "",
		},
		"guardDeletion of another namespace does not apply": {
			[]string{"label env * a", "team-b: label env * a!"}, "team-a", prod, "", "", "",
		},
		"guardDeletion: an object that is being deleted may disappear": {[]string{"label env * a!"}, "team-a",
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "", "", ""},
		"guardDeletion: an object that is being deleted may change otherwise": {[]string{"label env * a!"}, "team-a",
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x]}}`,
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := attributes.Change{Namespace: test.namespace, Old: object(t, test.old), New: object(t, test.new)}
			violations := rules(t, test.rules...).Judge(change, holder(test.holds))
			if test.want == "" {
				require.Empty(t, violations)
				return
			}
			require.Len(t, violations, 1)
			if text := violations[0].Describe("X") + ": " + violations[0].Remedy(); test.want != denied {
				require.Contains(t, text, test.want)
			}
		})
	}
}

func TestJudgeProtectsTheAttributesOfTemplates(t *testing.T) {
	t.Parallel()
	const metadata = `metadata: {labels: {env: prod}}`
	for place, text := range map[string]string{
		"template":           `{template: {` + metadata + `}}`,
		"spec":               `{spec: {` + metadata + `}}`,
		"spec.template":      `{spec: {template: {` + metadata + `}}}`,
		"spec.jobTemplate":   `{spec: {jobTemplate: {` + metadata + `}}}`,
		"data.spec.template": `{data: {spec: {template: {` + metadata + `}}}}`,
		"spec.volumes.*.ephemeral.volumeClaimTemplate":                                `{spec: {volumes: [{emptyDir: {}}, {ephemeral: {volumeClaimTemplate: {` + metadata + `}}}]}}`,
		"spec.volumeClaimTemplates.*":                                                 `{spec: {volumeClaimTemplates: [{metadata: {}}, {` + metadata + `}]}}`,
		"data.spec.volumeClaimTemplates.*":                                            `{data: {spec: {volumeClaimTemplates: [{metadata: {}}, {` + metadata + `}]}}}`,
		"spec.jobTemplate.spec.template":                                              `{spec: {jobTemplate: {spec: {template: {` + metadata + `}}}}}`,
		"spec.template.spec.volumes.*.ephemeral.volumeClaimTemplate":                  `{spec: {template: {spec: {volumes: [{ephemeral: {volumeClaimTemplate: {` + metadata + `}}}]}}}}`,
		"spec.jobTemplate.spec.template.spec.volumes.*.ephemeral.volumeClaimTemplate": `{spec: {jobTemplate: {spec: {template: {spec: {volumes: [{ephemeral: {volumeClaimTemplate: {` + metadata + `}}}]}}}}}}`,
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			r := rules(t, "label env * a!")
			with, without := object(t, text), object(t, bare)
			for _, change := range []attributes.Change{
				{New: with}, {Old: without, New: with}, {Old: with, New: without}, {Old: with},
			} {
				violations := r.Judge(change, holder(""))
				require.Len(t, violations, 1)
				require.Contains(t, violations[0].Describe("X"), " in "+place+" of X")
				require.Empty(t, r.Judge(change, holder("a")))
			}
			require.Empty(t, r.Judge(attributes.Change{Old: with, New: with}, holder("")))
		})
	}
}

func TestJudgeReturnsAllViolations(t *testing.T) {
	t.Parallel()
	violations := rules(t, "label env * a", "annotation note * b", "label tier * c").Judge(attributes.Change{
		Old: object(t, `{metadata: {labels: {tier: "1"}}, spec: {template: {metadata: {labels: {env: prod}}}}}`),
		New: object(t,
			`{metadata: {labels: {env: prod}, annotations: {note: x}}, spec: {template: {metadata: {labels: {tier: "1"}}}}}`),
	}, holder("c"))
	var got []string
	for _, violation := range violations {
		got = append(got, violation.Describe("X"))
	}
	require.Equal(t, []string{
		`set annotation note of X to "x"`,
		`set label env of X to "prod"`,
		`remove label env in spec.template of X, which is "prod"`,
	}, got)
}

// Holders of the role a may make all deletions that are returned, and users without a role none of them.
func TestGuardedDeletions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules, want []string
	}{
		"no rule guards deletions":   {[]string{"label env * a", "annotation note x a"}, nil},
		"values":                     {[]string{"label env prod,staging a!"}, []string{"env=prod", "env=staging"}},
		"any value":                  {[]string{"annotation note * a!"}, []string{"note=any value"}},
		"a rule without a guard":     {[]string{"label env x a!", "label env y a"}, []string{"env=x", "env=y"}},
		"a rule about another label": {[]string{"label env prod a!", "label tier test b"}, []string{"env=prod"}},
		"a rule of a namespace":      {[]string{"label env x a!", "team-a: label tier * b!"}, []string{"env=x"}},
		"several attributes": {
			[]string{"label tier x a!", "annotation env * a!", "label env y a!"}, []string{"env=any value", "env=y", "tier=x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rules(t, test.rules...)
			var found []string
			for _, change := range all.GuardedDeletions() {
				for _, violation := range all.Judge(change, func(v1alpha1.RoleReference) bool { return false }) {
					found = append(found, violation.Name+"="+strings.Join(violation.Removed, ","))
				}
				require.Empty(t, all.Judge(change, func(role v1alpha1.RoleReference) bool { return role.Name == "a" }))
			}
			require.Equal(t, test.want, found)
		})
	}
}

// Templates in a list have no names, so Judge compares how often each value occurs.
func TestJudgeIgnoresTheOrderOfTemplatesInAList(t *testing.T) {
	t.Parallel()
	r := rules(t, "label env * a")
	list := func(values ...string) map[string]any {
		text := `{spec: {volumeClaimTemplates: [`
		for _, value := range values {
			text += `{metadata: {labels: {env: "` + value + `"}}}, {metadata: {}},`
		}
		return object(t, text+`]}}`)
	}
	require.Empty(t, r.Judge(attributes.Change{Old: list("x", "y"), New: list("y", "x")}, holder("")))
	violations := r.Judge(attributes.Change{Old: list("x"), New: list("x", "x")}, holder(""))
	require.Len(t, violations, 1)
	require.Equal(t, []string{"x"}, violations[0].Set)
	require.Empty(t, violations[0].Removed)
}

func TestRevisionChangesWithEveryRule(t *testing.T) {
	t.Parallel()
	one, two := clusterRule(t, "label env * a"), clusterRule(t, "label env * b")
	one.UID, two.UID = "1", "2"
	of := func(cluster ...v1alpha1.ClusterProtectedAttribute) string {
		return attributes.NewRules(cluster, nil).Revision()
	}
	edited := one
	edited.Generation++
	require.Equal(t, of(one, two), of(two, one))
	revisions := []string{of(), of(one), of(two), of(one, two), of(edited), of(edited, two)}
	slices.Sort(revisions)
	require.Len(t, slices.Compact(revisions), 6)
}

// A requester who holds every role may make every change that one rule covers, and one who changes nothing needs no
// role.
func FuzzJudge(f *testing.F) {
	for _, seed := range []string{bare, prod, noted, `{spec: []}`, `{spec: {template: null}}`,
		`{metadata: {labels: 1}}`,
		`{spec: {volumeClaimTemplates: [1, null, {metadata: []}]}}`, `{metadata: {labels: {env: {a: [1]}}}}`} {
		f.Add(seed, prod)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		var old, updated map[string]any
		if yaml.Unmarshal([]byte(before), &old) != nil || yaml.Unmarshal([]byte(after), &updated) != nil {
			return
		}
		r := rules(t, "label env * a!", "annotation env * b", "team-a: label env * c")
		change := attributes.Change{Namespace: "team-a", Old: old, New: updated}
		require.Empty(t, r.Judge(change, holder("a b c")))
		require.Empty(t, r.Judge(attributes.Change{Namespace: "team-a", Old: old, New: old}, holder("a b c")))
		if updated != nil {
			require.Empty(t, r.Judge(attributes.Change{Old: updated, New: updated}, holder("")))
		}
		for _, violation := range r.Judge(change, holder("")) {
			require.NotEmpty(t, slices.Concat(violation.Removed, violation.Set))
			require.NotEmpty(t, violation.Remedy())
		}
	})
}
