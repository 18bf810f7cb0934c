package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/schema"
)

func catalog(t testing.TB) *schema.Catalog {
	t.Helper()
	schemas, err := schema.New()
	require.NoError(t, err)
	return schemas
}

// texts returns problems as sentences.
func texts(problems []Problem) []string {
	var all []string
	for _, problem := range problems {
		all = append(all, problem.Error())
	}
	return all
}

const pasted = `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: robot
  uid: 7e1bd5a5-12de-4ae4-9b07-b0c2c4a63cd1
  resourceVersion: "123"
  creationTimestamp: 2024-01-31T12:00:00Z
  generation: 1
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]
  managedFields: [{manager: kubectl, fieldsV1: {}}]
`

// One run finds a dozen mistakes of all sorts in one template.
func TestVetFindsEveryPlantedMistake(t *testing.T) {
	template := withOverlays(t, templateOf(t,
		"{apiVersion: v1, kind: ResourceQuota, metadata: {name: budget}, spec: {hards: {pods: 5}}}",
		"{apiVersion: v1, kind: ResourceQuota, metadata: {name: counts}, spec: {hard: {pods: five, service: 2}}}",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}, podSelector: {}, spec: {policyType: [Ingress]}}",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {podSelector: {}, policyTypes: [ingress], ingress: [{ports: [{port: '80'}]}]}}",
		pasted,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: view}, roleref: {}, subjects: [{kind: Usr, name: $(CREATOR), apigroup: rbac.authorization.k8s.io}]}",
		"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80a}]}}",
		"{apiVersion: v1, kind: LimitRange, metadata: {name: limits, label: {a: b}}, spec: {limits: {type: Container}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {debug: true, nested: {a: b}}}",
	), `[{name: o, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, datas: {a: b}}'}]}]`)
	require.Equal(t, []string{
		"spec.templates[0].spec.hards: resourcequota/budget: unknown field: did you mean hard?",
		`spec.templates[1].spec.hard[pods]: resourcequota/counts: must be a quantity, not the string "five": write a number with an optional suffix, such as 10, 500m or 2Gi`,
		"spec.templates[1].spec.hard[service]: resourcequota/counts: unknown resource: did you mean services?",
		"spec.templates[2].podSelector: networkpolicy.networking.k8s.io/deny: unknown field: move it to spec.podSelector",
		"spec.templates[2].spec.policyType: networkpolicy.networking.k8s.io/deny: unknown field: did you mean policyTypes?",
		`spec.templates[3].spec.ingress[0].ports[0].port: networkpolicy.networking.k8s.io/web: "80" is not the name of a port: remove the quotes: 80`,
		`spec.templates[3].spec.policyTypes[0]: networkpolicy.networking.k8s.io/web: "ingress" is not a supported value: did you mean Ingress?`,
		"spec.templates[4].metadata: serviceaccount/robot: has fields that the API server sets: metadata.creationTimestamp, metadata.generation, metadata.managedFields, metadata.ownerReferences, metadata.resourceVersion, metadata.uid: remove them, as well as all else that kubectl get prints but you did not write",
		"spec.templates[5].roleRef: rolebinding.rbac.authorization.k8s.io/view: is required: add it",
		"spec.templates[5].roleref: rolebinding.rbac.authorization.k8s.io/view: unknown field: did you mean roleRef?",
		"spec.templates[5].subjects[0].apigroup: rolebinding.rbac.authorization.k8s.io/view: unknown field: did you mean apiGroup?",
		`spec.templates[5].subjects[0].kind: rolebinding.rbac.authorization.k8s.io/view: "Usr" is not a supported value: did you mean User?`,
		`spec.templates[6].spec.ports[0].port: service/web: must be a whole number, not the string "80a"`,
		"spec.templates[7].metadata.label: limitrange/limits: unknown field: did you mean labels?",
		"spec.templates[7].spec.limits: limitrange/limits: must be a list, not an object: write it as an item of a list, after a dash",
		`spec.templates[8].data[debug]: configmap/settings: must be a string, not true: write it in quotes: "true"`,
		"spec.templates[8].data[nested]: configmap/settings: must be a string, not an object",
		"spec.overlays[0].patches[0]: configmap/settings: overlay o: datas: unknown field: did you mean data?",
	}, texts(Vet(t.Context(), template, catalog(t))))
}

func TestVetRefusesFieldsThatTheServerSets(t *testing.T) {
	const start = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: a"
	for fields, want := range map[string][]string{
		"}}": nil,
		", creationTimestamp: null}, status: {}}": nil,
		"}, status: {hard: {pods: 5}}}": {
			"spec.templates[0].status: resourcequota/a: has fields that the API server sets: status: ",
		},
		", uid: x}}": {
			"spec.templates[0].metadata.uid: resourcequota/a: has fields that the API server sets: metadata.uid: ",
		},
		", selfLink: /a}, status: {x: y}}": {
			"spec.templates[0].metadata: resourcequota/a: has fields that the API server sets: metadata.selfLink, status: ",
		},
	} {
		problems := Vet(t.Context(), templateOf(t, start+fields), catalog(t))
		require.Len(t, problems, len(want), "%s: %v", fields, problems)
		for i := range want {
			require.Equal(t, ruleServerMetadata, problems[i].Rule)
			require.True(t, strings.HasPrefix(problems[i].Error(), want[i]), "%v", problems[i])
		}
	}
}

// A template that was stored before Vet checked schemas and fields of the server still populates namespaces.
func TestCompileAcceptsWhatOnlyVetRefuses(t *testing.T) {
	for _, object := range []string{
		pasted, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hards: {}}}",
	} {
		template := templateOf(t, object)
		require.NotEmpty(t, Vet(t.Context(), template, catalog(t)))
		_, err := Compile(t.Context(), template, nil)
		require.NoError(t, err)
	}
}

func TestVetReportsAProblemOfTheBaseOnce(t *testing.T) {
	template := withOverlays(t, templateOf(t,
		"{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hards: {}}}"), `
- {name: o, labels: {a: b}}
- {name: p, patches: [{patch: '{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {pods: 1.5}}}'}]}`)
	require.Equal(t, []string{
		"spec.templates[0].spec.hards: resourcequota/a: unknown field: did you mean hard?",
		"spec.overlays[1].patches[0]: resourcequota/a: overlay p: spec.hard[pods]: must be a whole number",
	}, texts(Vet(t.Context(), template, catalog(t))))
}

func TestVetChecksOverlaysOfATemplateThatIsInvalid(t *testing.T) {
	const overlays = `
- {name: o, labels: {policy/namespace-template-name: x}}
- {name: p, patches: [{patch: '[{"op": "remove", "path": "/data/x"}]', target: {kind: ConfigMap}}]}
- {name: q, annotations: {a: b}}`
	for broken, want := range map[string][]string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}, data: {k: v}}": {
			"spec.templates[1].metadata.namespace: configmap/a: must not be set: remove it, because objects are created in the populated namespace",
			"spec.overlays[0].labels[policy/namespace-template-name]: overlay o: the label policy/namespace-template-name is reserved for nstpl: remove it",
			"spec.overlays[1].patches[0]: overlay p: the patch removes /data/x, which does not exist: leave the operation out",
		},
		"{kind: ConfigMap, metadata: {name: a}}": { // the patch might change this object
			"spec.templates[1]: apiVersion is missing",
			"spec.overlays[0].labels[policy/namespace-template-name]: overlay o: the label policy/namespace-template-name is reserved for nstpl: remove it",
		},
	} {
		template := withOverlays(t, templateOf(t, configMap, broken), overlays)
		require.Equal(t, want, texts(Vet(t.Context(), template, catalog(t))), broken)
	}
}

func TestVetNamesTheFailingPatch(t *testing.T) {
	const good = `{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}'}`
	for patch, want := range map[string]string{
		`{patch: ''}`: "the patch is empty: write a patch, or remove it",
		`{patch: '{data: {a: b}}', target: {kind: ConfigMap}}`:                                         "the patch does not name the object that it changes: add apiVersion, kind and metadata.name, even if there is a target",
		`{patch: '[{"op": "replace", "path": "/data/x/y", "value": "1"}]', target: {kind: ConfigMap}}`: "the patch changes /data/x/y, which does not exist: use the operation add to create it",
		`{patch: '[{"op": "test", "path": "/data/color", "value": "x"}]', target: {kind: ConfigMap}}`:  "the test of /data/color in the patch fails",
		`{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}'}`:                        "the patch changes configmap/other, which the template does not declare: correct its apiVersion, kind or name",
		`{patch: '[1]', target: {kind: ConfigMap}}`:                                                    "the patch is not a valid JSON patch: write a list of operations, such as {op: add, path: /data/a, value: b}",
	} {
		template := withOverlays(t, templateOf(t, configMap), "[{name: o, patches: ["+good+", "+patch+"]}]")
		require.Equal(t, []string{"spec.overlays[0].patches[1]: overlay o: " + want},
			texts(Vet(t.Context(), template, nil)), "%s", patch)
	}
}

func TestWarningsAboutTextThatResemblesAToken(t *testing.T) {
	const isMeant = " is not a token: did you mean $(NAMESPACE)?"
	for value, want := range map[string]string{
		"$(NAMESPACE)": "", "$$(NAMESPACE)": "", "$(HOSTNAME)": "", "$(POD_NAME)": "", "$(POD_NAMESPACE)": "",
		"$(NAME)": "", "$(CREATED)": "", "$NAMESPACES": "", "$HOME/${USER}": "", "NAMESPACE": "", "$()": "",
		"costs 5$":        "",
		"a-$(NAMESPCE)-b": "$(NAMESPCE)" + isMeant, "$(Namespace)": "$(Namespace)" + isMeant,
		"$(NAMESPACE": "$(NAMESPACE" + isMeant, "${NAMESPACE}": "${NAMESPACE}" + isMeant,
		"$NAMESPACE/a": "$NAMESPACE" + isMeant,
		"$(CREATOR":    "$(CREATOR is not a token: did you mean $(CREATOR)?",
		"$(CREATR)":    "$(CREATR) is not a token: did you mean $(CREATOR)?",
	} {
		template := templateOf(t,
			fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: %q}}", value))
		require.Empty(t, Vet(t.Context(), template, catalog(t)))
		if want == "" {
			require.Empty(t, Warnings(template), "%s", value)
		} else {
			require.Equal(t, []string{"spec.templates[0].data.key: " + want}, Warnings(template))
		}
	}
	require.Empty(t, Warnings(templateOf(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [
		{name: a, image: b, env: [{name: NAMESPACE, value: x}], command: [sh, -c, "echo $NAMESPACE ${NAMESPACE}"]}]}}`)),
		"an environment variable of the container")
	template := withOverlays(t, templateOf(t, configMap), `[{name: o, labels: {a: $(NAMESPAC)}}]`)
	require.Equal(t, []string{"spec.overlays[0].labels[a]: $(NAMESPAC)" + isMeant}, Warnings(template))
}

// A template of 60 objects is vetted in well under 100 ms.
func BenchmarkVet(b *testing.B) {
	var objects []string
	for i := range 15 {
		for _, object := range []string{configMap, roleBinding, deployment, networkPolicy} {
			objects = append(objects, strings.Replace(object, "name: ", fmt.Sprintf("name: a%d-", i), 1))
		}
	}
	template := templateOf(b, objects...)
	schemas := catalog(b)
	require.Empty(b, Vet(b.Context(), template, schemas))
	for b.Loop() {
		Vet(b.Context(), template, schemas)
	}
}
