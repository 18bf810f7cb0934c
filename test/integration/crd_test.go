package integration_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

func TestInvalidTemplatesAreRejected(t *testing.T) {
	t.Parallel()
	const kind = "apiVersion: policy.nstpl.dev/v1alpha1\nkind: NamespaceTemplate\n"
	spec := func(namespaces, more string) string {
		return kind + "metadata: {name: x}\nspec:\n  namespaces: " + namespaces + "\n" + more
	}
	expression := func(fields string) string {
		return spec("{labelSelector: {matchExpressions: [{key: a, "+fields+"}]}}", "")
	}
	for name, test := range map[string]struct{ yaml, refusal string }{
		"a name of 64 characters": {
			kind + "metadata: {name: " + strings.Repeat("x", 64) + "}\nspec: {namespaces: {labelSelector: {}}}\n",
			"at most 63 characters",
		},
		"no spec":              {kind + "metadata: {name: x}\n", "spec: Required value"},
		"no namespaces":        {kind + "metadata: {name: x}\nspec: {}\n", "spec.namespaces: Required value"},
		"no selector":          {spec("{}", ""), "labelSelector: Required value"},
		"an unknown operator":  {expression("operator: Near"), "is In, NotIn, Exists or DoesNotExist"},
		"In without values":    {expression("operator: In"), "In and NotIn need values"},
		"NotIn with no values": {expression("operator: NotIn, values: []"), "In and NotIn need values"},
		"Exists with values":   {expression("operator: Exists, values: [b]"), "take none"},
		"a drift policy":       {spec("{labelSelector: {}}", "  driftPolicy: Sometimes\n"), "Unsupported value"},
		"a failure policy":     {spec("{labelSelector: {}}", "  failurePolicy: Panic\n"), "Unsupported value"},
		"a deletion policy":    {spec("{labelSelector: {}}", "  deletionPolicy: Keep\n"), "Unsupported value"},
		"a template in words":  {spec("{labelSelector: {}}", "  templates: [Role]\n"), "must be of type object"},
		"an overlay without name": {
			spec("{labelSelector: {}}", "  overlays: [{namespaces: {labelSelector: {}}}]\n"), "name: Required value",
		},
		"two overlays of one name": {
			spec("{labelSelector: {}}",
				"  overlays: [{name: a, namespaces: {labelSelector: {}}}, {name: a, namespaces: {labelSelector: {}}}]\n"),
			"Duplicate value",
		},
		"an overlay for no namespaces": {
			spec("{labelSelector: {}}", "  overlays: [{name: a, namespaces: {}}]\n"), "labelSelector: Required value",
		},
		"a negative replica count": {
			spec("{labelSelector: {}}",
				"  overlays: [{name: a, namespaces: {labelSelector: {}}, replicas: [{name: web, count: -1}]}]\n"),
			"should be greater than or equal to 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tryToCreate(t, test.yaml), test.refusal)
		})
	}
}

// tryToCreate creates an object with a dry run, in the namespace default if it has one.
func tryToCreate(t *testing.T, text string) error {
	t.Helper()
	objects, err := operator.Decode(text)
	require.NoError(t, err)
	require.Len(t, objects, 1)
	isNamespaced, err := sharedCluster.client.IsObjectNamespaced(objects[0])
	require.NoError(t, err)
	if isNamespaced {
		objects[0].SetNamespace(metav1.NamespaceDefault)
	}
	return sharedCluster.client.Create(t.Context(), objects[0], client.DryRunAll)
}

func TestInvalidAttributeRulesAreRejected(t *testing.T) {
	t.Parallel()
	attribute := func(kind, fields string) string {
		return "{apiVersion: policy.nstpl.dev/v1alpha1, kind: " + kind + ", metadata: {name: x, namespace: default}, " +
			fields + "}"
	}
	const role = "roleRef: {kind: ClusterRole, name: a}"
	for name, test := range map[string]struct{ yaml, refusal string }{
		"no attribute": {
			attribute("ProtectedAttribute", "attributeKind: Label, "+role), "attributeName: Required value",
		},
		"another kind": {
			attribute("ProtectedAttribute", "attributeKind: Field, attributeName: a, "+role), "Unsupported value",
		},
		"no name": {attribute("ProtectedAttribute",
			"attributeKind: Label, attributeName: a/b/c, "+role), "attributeName must be a name"},
		"an upper-case prefix": {attribute("ProtectedAttribute",
			"attributeKind: Label, attributeName: Example.com/b, "+role), "attributeName must be a name"},
		"no value of a label": {attribute("ProtectedAttribute",
			"attributeKind: Label, attributeName: a, protectedValues: [a b], "+role), "must be valid label values"},
		"an empty value": {attribute("ProtectedAttribute",
			`attributeKind: Label, attributeName: a, protectedValues: [""], `+role), "at least 1 chars long"},
		"a value twice": {attribute("ProtectedAttribute",
			"attributeKind: Annotation, attributeName: a, protectedValues: [a, a], "+role), "Duplicate value"},
		"no role": {
			attribute("ProtectedAttribute", "attributeKind: Label, attributeName: a"), "roleRef: Required value",
		},
		"no name of a role": {attribute("ProtectedAttribute",
			"attributeKind: Label, attributeName: a, roleRef: {kind: Role, name: a/b}"), "no role can have this name"},
		"a role of the cluster": {attribute("ClusterProtectedAttribute",
			"attributeKind: Label, attributeName: a, roleRef: {kind: Role, name: a}"),
			"roleRef.kind can only be ClusterRole"},
		"a role of another group": {attribute("ProtectedAttribute",
			"attributeKind: Label, attributeName: a, roleRef: {kind: Role, name: a, apiGroup: b}"),
			"Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tryToCreate(t, test.yaml), test.refusal)
		})
	}
}

func TestInvalidConstraintsAreRejected(t *testing.T) {
	t.Parallel()
	constraints := func(fields string) string {
		text := "{apiVersion: policy.nstpl.dev/v1alpha1, kind: SecurityContextConstraints, metadata: {name: x}, " +
			fields
		for _, field := range []string{"runAsUser", "seLinuxContext"} {
			if !strings.Contains(fields, field) {
				text += ", " + field + ": {type: RunAsAny}"
			}
		}
		return text + "}"
	}
	for name, test := range map[string]struct{ yaml, refusal string }{
		"no strategy":          {constraints("runAsUser: {type: Sometimes}"), "Unsupported value"},
		"a user without an id": {constraints("runAsUser: {type: MustRunAs}"), "MustRunAs needs a uid"},
		"half a range": {
			constraints("runAsUser: {type: MustRunAsRange, uidRangeMin: 1}"), "a range has both",
		},
		"a range backwards": {
			constraints("runAsUser: {type: MustRunAsRange, uidRangeMin: 2, uidRangeMax: 1}"), "must not be greater",
		},
		"groups backwards": {
			constraints("fsGroup: {type: MustRunAs, ranges: [{min: 2, max: 1}]}"), "min must not be greater than max",
		},
		"a negative priority": {constraints("priority: -1"), "should be greater than or equal to 0"},
		"dropped and added": {
			constraints("requiredDropCapabilities: [A], defaultAddCapabilities: [A]"),
			"can't be both required to be dropped and added",
		},
		"dropped and allowed": {
			constraints("requiredDropCapabilities: [A], allowedCapabilities: [A]"),
			"can't be both required to be dropped and allowed",
		},
		"dropped, and all allowed": {
			constraints(`requiredDropCapabilities: [A], allowedCapabilities: ["*"]`), "with * all are allowed",
		},
		"escalation both ways": {
			constraints("defaultAllowPrivilegeEscalation: true, allowPrivilegeEscalation: false"),
			"the default can't be to allow",
		},
		"none, and some": {constraints("volumes: [none, secret]"), "none must stand alone"},
		"drivers of nothing": {
			constraints("volumes: [secret], allowedFlexVolumes: [{driver: a}]"), "need flexVolume or",
		},
		"no file of a profile": {
			constraints("seccompProfiles: [localhost/]"), "localhost/ needs the name of a file",
		},
		"no name of a sysctl":   {constraints(`allowedUnsafeSysctls: ["a*b"]`), "a sysctl is a name"},
		"all sysctls, and some": {constraints(`forbiddenSysctls: ["*", a]`), "stands alone"},
		"overlapping sysctls": {
			constraints(`allowedUnsafeSysctls: ["net.*"], forbiddenSysctls: [net.core.somaxconn]`), "must not overlap",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tryToCreate(t, test.yaml), test.refusal)
		})
	}
}

// OpenShift prints constraints in this form.
func TestConstraintsWithNullFieldsAreAccepted(t *testing.T) {
	t.Parallel()
	_, err := sharedCluster.kubectl(t.Context(), `
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: x}
allowHostDirVolumePlugin: false
allowPrivilegeEscalation: null
allowedCapabilities: null
allowedFlexVolumes: null
allowedUnsafeSysctls: null
defaultAddCapabilities: null
defaultAllowPrivilegeEscalation: null
forbiddenSysctls: ["kernel.*"]
fsGroup: {type: MustRunAs, ranges: null}
groups: []
priority: null
requiredDropCapabilities: null
runAsUser: {type: MustRunAsRange, uid: null, uidRangeMin: null, uidRangeMax: null}
seLinuxContext: {type: MustRunAs, seLinuxOptions: null}
seccompProfiles: null
supplementalGroups: {}
users: null
volumes: null
`, "create", "--dry-run=server", "--filename", "-")
	require.NoError(t, err)
	_, err = sharedCluster.kubectl(t.Context(), `
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: x}
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
allowedFlexVolumes: [{driver: a}]
volumes: null
`, "create", "--dry-run=server", "--filename", "-")
	require.NoError(t, err, "volumes of all types are allowed by default")
}

func TestTemplateDefaultsAreStored(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", "")
	require.Equal(t, v1alpha1.DriftCorrect, template.Spec.DriftPolicy)
	require.Equal(t, v1alpha1.FailureFail, template.Spec.FailurePolicy)
	require.Equal(t, v1alpha1.DeletionOrphan, template.Spec.DeletionPolicy)
}

// The API server stores every field of a declared object, whether or not the field is in its schema.
func TestTemplatesKeepUnknownFields(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("odd",
		"apiVersion: example.org/v1\nkind: Odd\nmetadata: {name: x}\nspec: {deeply: [{nested: {field: 1}}]}\nextra: true\n")
	require.JSONEq(t, `{"apiVersion": "example.org/v1", "kind": "Odd", "metadata": {"name": "x"},
		"spec": {"deeply": [{"nested": {"field": 1}}]}, "extra": true}`, string(template.Spec.Templates[0].Raw))
}

func TestPrinterColumnsShowTemplateStatus(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("settings", "v"))
	s.createPopulatedNamespace("a")
	s.createPopulatedNamespace("b")
	_, err := s.kubectl(t.Context(), "", "wait", "--for=jsonpath={.status.namespaces.populated}=2",
		"nstpl/"+template.Name)
	require.NoError(t, err)
	out, err := s.kubectl(t.Context(), "", "get", "nstpl", template.Name, "--output=wide")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	require.Equal(t,
		[]string{
			"NAME", "ACCEPTED", "POPULATED", "READY", "MATCHED", "UPDATED", "FAILED", "DRIFTED", "DRIFT-POLICY",
			"DELETION-POLICY", "AGE",
		}, strings.Fields(lines[0]))
	require.Equal(t, []string{template.Name, "True", "True", "True", "2", "2", "0", "0", "Correct", "Orphan"},
		strings.Fields(lines[1])[:10])
}

// Each kind's description, which kubectl explain and docs/kinds.md show, ends with an example that the API server and
// the operator's webhooks accept.
func TestDescriptionsShowAValidExample(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../manifests/crd/policy.nstpl.dev_*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	s := newScope(t, sharedCluster)
	company := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "company"}} // the parent in an example
	require.NoError(t, s.client.Create(t.Context(), company))
	t.Cleanup(func() { assert.NoError(t, s.client.Delete(context.WithoutCancel(t.Context()), company)) })
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema struct{ Description string } }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &crd))
		require.NotEmpty(t, crd.Spec.Versions)
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			t.Parallel()
			for _, version := range crd.Spec.Versions {
				_, example, found := strings.Cut(version.Schema.OpenAPIV3Schema.Description, "Example:\n\n")
				require.True(t, found, "the description has no example")
				example = strings.ReplaceAll("\n"+example, "\n\t", "\n")
				require.Contains(t, example, "\nkind: "+crd.Spec.Names.Kind+"\n")
				// The namespace of an example does not exist here.
				example = strings.ReplaceAll(example, "namespace: team-a\n", "namespace: default\n")
				_, err := sharedCluster.kubectl(t.Context(), example, "create", "--dry-run=server", "--validate=strict",
					"--filename", "-")
				require.NoError(t, err)
			}
		})
	}
}
