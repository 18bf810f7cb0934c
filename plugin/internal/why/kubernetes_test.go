package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
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
		`error: failed to create configmap: namespaces "a" not found`:                                  "namespace a does not exist",
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

// A LimitRange beside the one that decided has nothing to do with the denial.
func TestTheLimitInAMessage(t *testing.T) {
	t.Parallel()
	one := corev1.ResourceList{"cpu": resource.MustParse("1"), "storage": resource.MustParse("1024Mi")}
	two := corev1.ResourceList{"cpu": resource.MustParse("2")}
	limits := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, Min: two},
		{Type: corev1.LimitTypeContainer, Min: one, Max: two, MaxLimitRequestRatio: two},
	}}}
	for text, want := range map[string]bool{
		"minimum cpu usage per Container is 1, but request is 10m":                        true,
		"minimum cpu usage per Container is 1.  No request is specified":                  true,
		"maximum cpu usage per Container is 2, but limit is 4":                            true,
		"cpu max limit to request ratio per Container is 2, but provided ratio is 3.00":   true,
		"minimum storage usage per Container is 1Gi, but request is 1":                    true,
		"maximum cpu usage per Container is 1, but limit is 4":                            false,
		"maximum memory usage per Container is 2, but limit is 4":                         false,
		"maximum cpu usage per Pod is 2, but limit is 4":                                  false,
		"memory max limit to request ratio per Container is 2, but provided ratio is 3.0": false,
	} {
		require.Equal(t, want, hasLimit(limits, limitInMessage.FindStringSubmatch(text)), text)
	}
}

func TestWhatAUserWithoutAPermissionNeeds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`secrets is forbidden: User "bob" cannot list resource "secrets" in API group "" at the cluster scope`: "Ask an " +
			"administrator for the verb list on secrets. 'kubectl auth can-i list secrets -A' shows whether you have it.",
		`pods "p" is forbidden: User "bob" cannot delete resource "pods" in API group "" in the namespace "a"`: "Ask an " +
			"administrator for the verb delete on pods. 'kubectl auth can-i delete pods -n a' shows whether you have it.",
		`templateexemptions.policy.nstpl.dev is forbidden: User "bob" cannot create resource "templateexemptions" in API ` +
			`group "policy.nstpl.dev" in the namespace "a"`: "Ask an administrator for the verb create on templateexemptions, " +
			"and for the verb exempt on the template.",
		`templateexemptions.policy.nstpl.dev "e" is forbidden: User "bob" cannot delete resource "templateexemptions" in API ` +
			`group "policy.nstpl.dev" in the namespace "a"`: "Ask an administrator for the verb delete on " +
			"templateexemptions. 'kubectl auth can-i delete templateexemptions.policy.nstpl.dev -n a' shows whether you have it.",
	} {
		a, err := (&explainer{}).kubernetes(t.Context(), text)
		require.NoError(t, err)
		require.Contains(t, a.Facts, fact{labelRemedy, want})
	}
}

// The reason of a denial can be the denial of another request, which says nothing without the words around it.
func TestTheReasonInAMessage(t *testing.T) {
	t.Parallel()
	const reason = "namespace a could not be populated, and writes into it are denied until an administrator corrects the " +
		"template, or resolves what prevents the object: ObjectsFailed: configmap/a of template t: configmaps \"a\" is " +
		"forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not here"
	for _, decider := range []string{
		`Error from server (Forbidden): admission webhook "hold.policy.nstpl.dev" denied the request: `,
		`configmaps "b" is forbidden: ValidatingAdmissionPolicy 'q' with binding 'q' denied request: `,
	} {
		require.Equal(t, reason, reasonIn(codes.PopulationFailed.AddTo(decider+reason)))
	}
	const foreign = `admission webhook "validate.example.com" denied the request: no`
	require.Equal(t, foreign, reasonIn(foreign), "a message of Kubernetes is printed as it is")
}
