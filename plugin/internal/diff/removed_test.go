package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/match"
)

// object returns an object of the tree corp with other labels and annotations.
func object(kind string, labels, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	if kind != namespaceKind.Kind {
		object.SetAPIVersion("rbac.authorization.k8s.io/v1")
	}
	object.SetName("a")
	object.SetLabels(map[string]string{v1alpha1.TreeLabel: "corp"})
	for key, value := range labels {
		object.SetLabels(with(object.GetLabels(), key, value))
	}
	for key, value := range annotations {
		object.SetAnnotations(with(object.GetAnnotations(), key, value))
	}
	return object
}

func with(values map[string]string, key, value string) map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	values[key] = value
	return values
}

// manages returns an entry of managedFields for the labels of the tree and the metadata in JSON.
func manages(manager string, operation metav1.ManagedFieldsOperationType, metadata string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:` + v1alpha1.TreeLabel + `":{}},` + metadata + `}}`),
	}
}

// What a commit takes away is what the tool that applied the tree before takes away. Whatever other clients have set
// stays.
func TestLabelsAndAnnotationsThatATreeNoLongerDeclares(t *testing.T) {
	t.Parallel()
	const enforce, optOut = "pod-security.kubernetes.io/enforce", v1alpha1.OptOutAnnotation
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-edit"
	lastApplied := func(metadata string) map[string]string {
		return map[string]string{optOut: "true", corev1.LastAppliedConfigAnnotation: `{"metadata":{` + metadata + `}}`}
	}
	for name, test := range map[string]struct {
		kind                string
		labels, annotations map[string]string
		managers            []metav1.ManagedFieldsEntry
		keepsLabel, keeps   bool
	}{
		"kubectl apply": {
			kind: "Namespace", labels: map[string]string{enforce: "restricted"},
			annotations: lastApplied(`"labels":{"` + enforce + `":"restricted"},"annotations":{"` + optOut + `":"true"}`),
		},
		"kubectl apply, but others have set it": {
			kind: "Namespace", labels: map[string]string{enforce: "restricted"}, annotations: lastApplied(`"labels":{}`),
			keepsLabel: true, keeps: true,
		},
		"an invalid record": {
			kind: "Namespace", labels: map[string]string{enforce: "restricted"}, annotations: lastApplied(`"labels":1`),
			keepsLabel: true, keeps: true,
		},
		"kubectl apply of a role": {
			kind: "ClusterRole", labels: map[string]string{aggregate: "true"},
			annotations: lastApplied(`"labels":{"` + aggregate + `":"true"}`), keeps: true,
		},
		"server-side apply": {
			kind: "ClusterRole", labels: map[string]string{aggregate: "true"}, annotations: map[string]string{optOut: "true"},
			managers: []metav1.ManagedFieldsEntry{
				manages("nstpl-sync", metav1.ManagedFieldsOperationApply, `"f:annotations":{"f:`+optOut+`":{}}`),
				manages("other", metav1.ManagedFieldsOperationUpdate, `"f:finalizers":{}`),
			},
			keepsLabel: true,
		},
		"server-side apply, and others have set it, too": {
			kind: "ClusterRole", annotations: map[string]string{optOut: "true"},
			managers: []metav1.ManagedFieldsEntry{
				manages("nstpl-sync", metav1.ManagedFieldsOperationApply, `"f:annotations":{"f:`+optOut+`":{}}`),
				manages("other", metav1.ManagedFieldsOperationUpdate, `"f:annotations":{"f:`+optOut+`":{}}`),
			},
			keeps: true,
		},
		"created, and not applied": {
			kind: "ClusterRole", annotations: map[string]string{optOut: "true"},
			managers: []metav1.ManagedFieldsEntry{
				manages("kubectl-create", metav1.ManagedFieldsOperationUpdate, `"f:annotations":{"f:`+optOut+`":{}}`),
			},
			keeps: true,
		},
		"what Argo CD adds": {
			kind: "ClusterRole", labels: map[string]string{"app.kubernetes.io/instance": "corp"},
			annotations: map[string]string{
				"argocd.argoproj.io/sync-wave": "-1", optOut: "true", corev1.LastAppliedConfigAnnotation: `{"metadata":{` +
					`"labels":{"app.kubernetes.io/instance":"corp"},"annotations":{"argocd.argoproj.io/sync-wave":"-1"}}}`,
			},
			keepsLabel: true, keeps: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live, declared := object(test.kind, test.labels, test.annotations), object(test.kind, nil, nil)
			live.SetManagedFields(test.managers)
			desired := withDeclared(live, declared, nil)
			require.Equal(t, test.keepsLabel || len(test.labels) == 0, len(desired.GetLabels()) == 1+len(test.labels),
				desired.GetLabels())
			require.Equal(t, test.keeps, desired.GetAnnotations()[optOut] == "true")
			delete(test.annotations, optOut)
			for key := range test.annotations {
				require.Contains(t, desired.GetAnnotations(), key)
			}
		})
	}
}

// Nstpl-sync records what it has applied to a namespace. Users of the namespace cannot keep it by applying it, too.
func TestMetadataOfNamespacesThatFollowARepository(t *testing.T) {
	t.Parallel()
	declared := object("Namespace", map[string]string{"tier": "gold"}, nil)
	compiled, err := inventory.Declare([]*unstructured.Unstructured{declared})
	require.NoError(t, err)
	live := inventory.NewPlan(compiled, inventory.State{}, inventory.Options{Tree: "corp"}).Applies[0].Declared
	require.Equal(t, live, withDeclared(live, declared, nil), "the records of nstpl-sync are not a difference")
	live.SetLabels(with(live.GetLabels(), "other", "set"))
	desired := withDeclared(live, object("Namespace", nil, nil), nil)
	require.Equal(t, map[string]string{v1alpha1.TreeLabel: "corp", "other": "set"}, desired.GetLabels())
	require.Equal(t, live.GetAnnotations(), desired.GetAnnotations())

	record := `{"labels":{"tier":{"template":"t","uid":"u"}}}`
	live.SetAnnotations(with(live.GetAnnotations(), v1alpha1.NamespaceMetadataAnnotation, record))
	require.Equal(t, "gold", withDeclared(live, object("Namespace", nil, nil), nil).GetLabels()["tier"], "a template has set it")
}

// A namespace that a commit no longer opts out is populated, so what the tree does not declare is deleted in it.
func TestANamespaceThatATreeNoLongerOptsOut(t *testing.T) {
	t.Parallel()
	live := object("Namespace", nil, map[string]string{
		v1alpha1.OptOutAnnotation:          "true",
		corev1.LastAppliedConfigAnnotation: `{"metadata":{"annotations":{"` + v1alpha1.OptOutAnnotation + `":"true"}}}`,
	})
	live.SetUID("u")
	live.SetLabels(with(live.GetLabels(), v1alpha1.PolicySpaceLabel, "corp"))
	live.SetAnnotations(with(live.GetAnnotations(), v1alpha1.InTreeAnnotation, "true"))
	space := object("PolicySpace", nil, nil)
	space.SetAPIVersion(v1alpha1.GroupVersion.String())
	space.SetName("corp")
	declared := object("Namespace", map[string]string{v1alpha1.PolicySpaceLabel: "corp"}, nil)
	cluster := liveObjects{namespaceKind: {"a": live}, policySpaceKind: {"corp": space}}
	applied, err := cluster.apply("corp", []*unstructured.Unstructured{declared, space}, nil)
	require.NoError(t, err)
	require.Len(t, applied.namespaces, 1)
	require.False(t, match.OptedOut(applied.namespaces[0]))
}
