package vet

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

const depending = `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: depending}
spec:
  namespaces: {labelSelector: {}}
  templates:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: plan}
    data:
      plan: $(LABEL:example.com/plan)
      size: $(LABEL:example.com/size)
  sources:
  - {apiVersion: v1, kind: Secret, namespace: vault, name: ca}
`

const planRule = `---
apiVersion: policy.nstpl.dev/v1alpha1
kind: ClusterProtectedAttribute
metadata: {name: plan}
attributeKind: Label
attributeName: example.com/plan
roleRef: {kind: ClusterRole, name: setter}
`

const aggregated = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: secrets
  labels: {policy.nstpl.dev/aggregate-to-operator: "true"}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [list, watch, create, patch, delete]}
`

const reader = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: get-ca, namespace: vault}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: get-ca}
subjects:
- {kind: ServiceAccount, name: nstpl-operator, namespace: nstpl-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: get-ca, namespace: vault}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [ca], verbs: [get]}
`

// The API server tries each object alone, without what the same files bring.
func TestDenialsBecauseOfObjectsInTheSameFiles(t *testing.T) {
	plan := render.MetadataKey{Field: render.Labels, Key: "example.com/plan"}
	size := render.MetadataKey{Field: render.Labels, Key: "example.com/size"}
	secret := render.SourceRef{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "vault", Name: "ca",
	}
	unread := populate.MissingSourceRight(secret, schema.GroupResource{Resource: "secrets"})
	missing := func(verbs string) error {
		return errors.New("the operator may not " + verbs + ` secrets: add a ClusterRole with the label ` +
			`policy.nstpl.dev/aggregate-to-operator: "true" and the rule {apiGroups: [""], resources: ["secrets"], ` +
			`verbs: [list, watch, create, patch, delete]}`)
	}
	const onPlan = "1 it depends on clusterprotectedattribute/plan of these files, which is not applied yet"
	for name, test := range map[string]struct {
		files   string
		reasons []error
		// skipped are what is not checked, and violations the number of violations.
		skipped    []string
		violations int
	}{
		"a rule of the files": {planRule, []error{render.NewUnprotectedError([]render.MetadataKey{plan})}, []string{onPlan}, 0},
		"no rule":             {"", []error{render.NewUnprotectedError([]render.MetadataKey{plan})}, nil, 1},
		"a rule for one of two keys": {
			planRule, []error{render.NewUnprotectedError([]render.MetadataKey{plan, size})}, nil, 1,
		},
		"another reason with the token": {planRule, []error{errors.New("spec.templates[0]: " + plan.Token() + " is odd")}, nil, 1},
		"rights of the operator": {aggregated + reader, []error{missing("list, watch"), unread}, []string{
			"1 it depends on clusterrole.rbac.authorization.k8s.io/secrets of these files, which is not applied yet",
			"1 it depends on rolebinding.rbac.authorization.k8s.io/get-ca of these files, which is not applied yet",
		}, 0},
		"only some rights of the operator": {aggregated, []error{missing("create, patch"), unread}, []string{
			"1 it depends on clusterrole.rbac.authorization.k8s.io/secrets of these files, which is not applied yet",
		}, 1},
		"no rights of the operator": {"", []error{missing("list"), unread}, nil, 2},
		"rights of another user": {
			strings.Replace(reader, "name: nstpl-operator", "name: other", 1), []error{unread}, nil, 1,
		},
		"rights in another namespace": {strings.ReplaceAll(reader, "namespace: vault", "namespace: other"), []error{unread}, nil, 1},
		"a role that is not aggregated": {
			strings.Replace(aggregated, `"true"`, `"false"`, 1), []error{missing("list")}, nil, 1,
		},
		"a role of another kind": {
			strings.Replace(aggregated, "[secrets]", "[configmaps]", 1), []error{missing("list")}, nil, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := source.ReadAll(source.Filenames{Paths: []string{"-"}}, strings.NewReader(depending+test.files))
			require.NoError(t, err)
			checker := &checker{result: &result{}, brought: newBrought(files.Objects)}
			message := `admission webhook "template.policy.nstpl.dev" denied the request: template depending has 2 problems:`
			for _, reason := range test.reasons {
				message += "\n- " + reason.Error()
			}
			checker.refused(files.Objects[0], metav1.Status{Reason: metav1.StatusReasonForbidden, Message: message})
			var skipped []string
			for _, found := range checker.Skipped {
				found.Object = ""
				skipped = append(skipped, strings.TrimPrefix(output.Position("", found.Line), ":")+" "+found.text())
			}
			require.Equal(t, test.skipped, skipped)
			require.Len(t, checker.Violations, test.violations)
		})
	}
}
