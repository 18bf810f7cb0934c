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

// clusterRule is a ClusterProtectedAttribute: "label env prod,staging deployer", with ! at the end if it guards
// deletion. A star is every value.
func clusterRule(t *testing.T, text string) v1alpha1.ClusterProtectedAttribute {
	t.Helper()
	return v1alpha1.ClusterProtectedAttribute{
		ObjectMeta:    metav1.ObjectMeta{Name: strings.ReplaceAll(text, " ", "-")},
		AttributeRule: rule(t, text, v1alpha1.ClusterRoleKind),
	}
}

// namespaceRule is a ProtectedAttribute in a namespace: "team-a: label env * deployer".
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

func TestJudge(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	for name, test := range map[string]struct {
		rules     []string
		namespace string
		old, new  string
		holds     string
		// says is in what is refused; empty is allowed.
		says string
	}{
		"no rule":       {nil, "team-a", "", prod, "", ""},
		"another label": {[]string{"label env * a"}, "team-a", "", other, "", ""},
		"created with": {
			[]string{"label env * a"}, "team-a", "", prod, "",
			`set label env of X to "prod": ask for a binding to ClusterRole a (ClusterProtectedAttribute label-env-*-a)`,
		},
		"created by a holder":       {[]string{"label env * a"}, "team-a", "", prod, "a", ""},
		"an annotation is no label": {[]string{"label env * a"}, "team-a", "", noted, "", ""},
		"an annotation": {
			[]string{"annotation env * a"}, "team-a", "", noted, "", "set annotation env",
		},
		"an annotation by a holder": {[]string{"annotation env * a"}, "team-a", "", noted, "a", ""},
		"outside of namespaces":     {[]string{"label env * a"}, "", "", prod, "", refused},
		"left alone": {
			[]string{"label env * a"}, "team-a", prod,
			`{metadata: {name: a, labels: {env: prod}, annotations: {x: y}}, status: {a: b}}`, "", "",
		},
		"added": {
			[]string{"label env * a"}, "team-a", bare, prod, "", `set label env of X to "prod"`,
		},
		"added, empty": {[]string{"label env * a"}, "team-a", bare, empty, "", `to ""`},
		"removed": {
			[]string{"label env * a"}, "team-a", prod, bare, "", `remove label env of X, which is "prod"`,
		},
		"removed by a holder": {[]string{"label env * a"}, "team-a", prod, bare, "a", ""},
		"changed": {
			[]string{"label env * a"}, "team-a", prod, dev, "", `change label env of X from "prod" to "dev"`,
		},
		"changed by a holder": {[]string{"label env * a"}, "team-a", prod, dev, "a", ""},
		"emptied":             {[]string{"label env * a"}, "team-a", prod, empty, "", `from "prod" to ""`},
		"listed value":        {[]string{"label env prod a"}, "team-a", "", prod, "a", ""},
		"listed value without the role": {
			[]string{"label env prod a"}, "team-a", "", prod, "b", "ask for a binding to ClusterRole a",
		},
		"unlisted value": {
			[]string{"label env prod a"}, "team-a", "", dev, "a",
			`no rule opens this value to anybody: there are rules for "prod"`,
		},
		"unlisted value without the role": {
			[]string{"label env prod a"}, "team-a", "", dev, "", "no rule opens this value to anybody",
		},
		"listed to listed": {[]string{"label env prod,staging a"}, "team-a", prod, staging, "a", ""},
		"listed to unlisted": {
			[]string{"label env prod,staging a"}, "team-a", prod, dev, "a", "no rule opens",
		},
		"unlisted to listed": {
			[]string{"label env prod,staging a"}, "team-a", dev, prod, "a", "no rule opens",
		},
		"listed removed":   {[]string{"label env prod a"}, "team-a", prod, bare, "a", ""},
		"unlisted removed": {[]string{"label env prod a"}, "team-a", dev, bare, "a", "no rule opens"},
		"any one rule will do": {
			[]string{"label env prod a", "label env prod b"}, "team-a", "", prod, "b", "",
		},
		"none of two rules": {
			[]string{"label env prod a", "label env prod b"}, "team-a", "", prod, "c",
			"ClusterRole a (ClusterProtectedAttribute label-env-prod-a) or to ClusterRole b",
		},
		"each rule for its values": {[]string{"label env prod a", "label env dev b"}, "team-a", "", prod, "b",
			"ask for a binding to ClusterRole a"},
		"one rule for all values": {[]string{"label env prod a", "label env * b"}, "team-a", prod, dev, "b",
			""},
		"one rule for both values": {[]string{"label env prod a", "label env dev b"}, "team-a", prod, dev, "a b",
			"no rule opens these values together: remove the one first"},
		"namespace rule": {
			[]string{"team-a: label env * a"}, "team-a", "", prod, "",
			"Role a (ProtectedAttribute team-a/label-env-*-a)",
		},
		"namespace rule held":           {[]string{"team-a: label env * a"}, "team-a", "", prod, "a", ""},
		"another namespace's rule":      {[]string{"team-a: label env * a"}, "team-b", "", prod, "", ""},
		"namespace rule, none's object": {[]string{"team-a: label env * a"}, "", "", prod, "", ""},
		"namespace rule opens": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", prod, "b", "",
		},
		"namespace rule, but its value": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", dev, "b",
			"ask for a binding to ClusterRole a",
		},
		"cluster rule beside": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-a", "", dev, "a", "",
		},
		"another namespace's opens not": {
			[]string{"label env * a", "team-a: label env prod b"}, "team-b", "", prod, "b",
			"ask for a binding to ClusterRole a (",
		},
		"deleted":                       {[]string{"label env * a"}, "team-a", prod, "", "", ""},
		"deletion guarded":              {[]string{"label env * a!"}, "team-a", prod, "", "", "remove label env"},
		"deletion guarded, of another":  {[]string{"label env * a!"}, "team-a", other, "", "", ""},
		"deletion guarded, by a holder": {[]string{"label env * a!"}, "team-a", prod, "", "a", ""},
		"deletion guarded, other value": {[]string{"label env dev a!"}, "team-a", prod, "", "a", "no rule opens"},
		"deletion guarded by one": {
			[]string{"label env * a!", "label env prod b"}, "team-a", prod, "", "b", "",
		},
		"deletion guarded elsewhere": {
			[]string{"label env * a", "team-b: label env * a!"}, "team-a", prod, "", "", "",
		},
		"deleted already": {[]string{"label env * a!"}, "team-a",
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "", "", ""},
		"untouched while it is deleted": {[]string{"label env * a!"}, "team-a",
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x]}}`,
			`{metadata: {name: a, labels: {env: prod}, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := attributes.Change{Namespace: test.namespace, Old: object(t, test.old), New: object(t, test.new)}
			violations := rules(t, test.rules...).Judge(change, holder(test.holds))
			if test.says == "" {
				require.Empty(t, violations)
				return
			}
			require.Len(t, violations, 1)
			if text := violations[0].What("X") + ": " + violations[0].Remedy(); test.says != refused {
				require.Contains(t, text, test.says)
			}
		})
	}
}

func TestJudgeTemplates(t *testing.T) {
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
				require.Contains(t, violations[0].What("X"), " in "+place+" of X")
				require.Empty(t, r.Judge(change, holder("a")))
			}
			require.Empty(t, r.Judge(attributes.Change{Old: with, New: with}, holder("")))
		})
	}
}

func TestJudgeSaysAllThatStandsInTheWay(t *testing.T) {
	t.Parallel()
	violations := rules(t, "label env * a", "annotation note * b", "label tier * c").Judge(attributes.Change{
		Old: object(t, `{metadata: {labels: {tier: "1"}}, spec: {template: {metadata: {labels: {env: prod}}}}}`),
		New: object(t,
			`{metadata: {labels: {env: prod}, annotations: {note: x}}, spec: {template: {metadata: {labels: {tier: "1"}}}}}`),
	}, holder("c"))
	var said []string
	for _, violation := range violations {
		said = append(said, violation.What("X"))
	}
	require.Equal(t, []string{
		`set annotation note of X to "x"`,
		`set label env of X to "prod"`,
		`remove label env in spec.template of X, which is "prod"`,
	}, said)
}

// Lists of templates are told apart by their values: what is only moved is left alone, and another one is another one.
func TestJudgeListsOfTemplates(t *testing.T) {
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

func TestRevisions(t *testing.T) {
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

// Whoever holds every role may do everything, and whoever changes nothing needs none.
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
