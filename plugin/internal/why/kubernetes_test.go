package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A template or a tree would set the label of Pod Security again.
func TestWhoChangesThePodSecurityStandard(t *testing.T) {
	t.Parallel()
	record := `{"labels": {"pod-security.kubernetes.io/enforce": {"template": "baseline"}}}`
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"nothing of nstpl": {nil, nil, "change the label pod-security.kubernetes.io/enforce of the namespace."},
		"a template": {
			nil, map[string]string{v1alpha1.NamespaceMetadataAnnotation: record},
			"change the label pod-security.kubernetes.io/enforce of the namespace. Template baseline has set it: if the " +
				"template still declares it, change its namespaceMetadata instead, or first exempt the namespace with " +
				"'kubectl nstpl exempt n --template baseline --object namespace/n --reason TEXT --for 3d'.",
		},
		"a tree": {
			map[string]string{v1alpha1.TreeLabel: "corp"}, nil,
			"change the label pod-security.kubernetes.io/enforce of the namespace: in the files of the tree corp, if they set it.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: test.labels, Annotations: test.annotations,
			}}
			require.Equal(t, test.want, changeEnforced(ns))
		})
	}
}

// An administrator who decides by the answer whether to wait must know all that is denied, and who may go on.
func TestDeniedWithoutTheOperator(t *testing.T) {
	t.Parallel()
	require.Equal(t, "namespaces in policy spaces, or all namespaces with --self-service-only, cannot be created or "+
		"relabeled, except by users who may patch all policy spaces", deniedWithout("self-service.policy.nstpl.dev"))
	require.Contains(t, deniedWithout("namespace-quota.policy.nstpl.dev"), "into one below it or, if there are more than 500")
}

func TestKnownDenials(t *testing.T) {
	t.Parallel()
	const (
		failed   = "error: Apply failed with "
		conflict = "the server-side apply conflicts with the operator of nstpl, which applied fields that a template " +
			"declared"
	)
	for text, want := range map[string]string{
		`Toy.example.com "t" is invalid: spec.size: Required`: "the API server rejects Toy.example.com t: a field is " +
			"invalid",
		failed + `1 conflict: conflict with "nstpl": .data.a`:                                          conflict,
		failed + "2 conflicts: conflicts with \"a\":\n- .data.a\nconflicts with \"nstpl\":\n- .data.b": conflict,
		failed + `1 conflict: conflict with "other": .data.a`:                                          "",
	} {
		require.Len(t, denialsIn(text), 1)
		a, _ := knownDenial(text)
		require.Equal(t, want, a.Summary)
	}
}

func TestDenialsIn(t *testing.T) {
	t.Parallel()
	const (
		quota = `Error from server (Forbidden): error when creating "a.yaml": pods "a" is forbidden: exceeded quota: b, ` +
			"requested: pods=1, used: pods=1, limited: pods=1"
		rbac      = `secrets is forbidden: User "joe" cannot list resource "secrets" in API group "" in the namespace "a"`
		attribute = `admission webhook "attributes.policy.nstpl.dev" denied the request: one` + "\ntwo (nstpl:attribute-protected)"
		service   = "namespace x (nstpl:opt-out): not allowed (nstpl:self-service)"
		applied   = "Error from server: error when applying patch:\n{}\nto:\nName: \"a\"\nfor: \"a.yaml\": " + attribute
		looked    = "Error from server: error when retrieving current configuration of:\nfrom server for: \"a.yaml\": "
		invalid   = `The Pod "a" is invalid: ` + "\n* spec.containers: Required value"
	)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"none":     {" \n", nil},
		"joined":   {attribute + "\n" + service + "\n", []string{attribute, service}},
		"repeated": {service + "\n" + service, []string{service}},
		"of kubectl apply": {
			service + "\n" + applied + "\n" + looked + rbac, []string{service, applied, looked + rbac},
		},
		"of objects": {
			quota + "\nsecret/b created\n" + rbac + "\n" + attribute + "\n" + invalid,
			[]string{quota + "\nsecret/b created", rbac, attribute, invalid},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, denialsIn(test.text))
		})
	}
}
