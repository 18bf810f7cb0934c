package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Nstpl-sync does not do the same as "kubectl apply" with the namespaces of a tree.
func TestNamespacesOfATreeThatNstplSyncFollows(t *testing.T) {
	t.Parallel()
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
		"metadata": map[string]any{"name": "t", "uid": "u"},
		"spec": map[string]any{
			"namespaceMetadata": map[string]any{"labels": map[string]any{"tier": "silver"}},
		},
	}}
	declared := object("Namespace", map[string]string{"tier": "gold"}, nil)
	recordOf := func(template string) string {
		return populate.MetadataRecord{
			{Field: render.Labels, Key: "tier"}: populate.NewRecordedValue(template, "u", "silver"),
		}.String()
	}
	for name, test := range map[string]struct {
		existing    v1alpha1.ExistingNamespaces
		annotations map[string]string
		tier, adopt string
	}{
		"left alone":      {v1alpha1.ExistingIgnore, nil, "gold", ""},
		"adopted":         {v1alpha1.ExistingAdopt, nil, "gold", "true"},
		"already in tree": {v1alpha1.ExistingAdopt, map[string]string{v1alpha1.InTreeAnnotation: "true"}, "gold", ""},
		"a template has set the label": {v1alpha1.ExistingIgnore, map[string]string{
			v1alpha1.NamespaceMetadataAnnotation: recordOf("t"),
		}, "silver", ""},
		"a template that was deleted has set the label": {v1alpha1.ExistingIgnore, map[string]string{
			v1alpha1.NamespaceMetadataAnnotation: recordOf("gone"),
		}, "gold", ""},
		"kubectl had applied it": {v1alpha1.ExistingIgnore, map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"metadata":{"labels":{"team":"a"},"annotations":{"owner":"jane"}}}`,
			"owner":                            "jane",
		}, "gold", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := object("Namespace", map[string]string{"tier": "silver", "team": "a"}, test.annotations)
			live.SetManagedFields([]metav1.ManagedFieldsEntry{
				manages("kubectl", metav1.ManagedFieldsOperationApply, `"f:annotations":{"f:owner":{}}`),
			})
			by := &v1alpha1.PolicyRepository{Spec: v1alpha1.PolicyRepositorySpec{ExistingNamespaces: test.existing}}
			followed := liveObjects{
				namespaceKind: {"a": live}, templateKind: {"t": template},
			}.followed(by, []*unstructured.Unstructured{template, declared})
			require.Same(t, template, followed[0])
			desired := withDeclared(live, followed[1], by)
			require.Equal(t, test.tier, desired.GetLabels()["tier"])
			require.Equal(t, "a", desired.GetLabels()["team"], "nstpl-sync removes only what it applied")
			require.Subset(t, desired.GetAnnotations(), test.annotations)
			require.Equal(t, test.adopt, desired.GetAnnotations()[v1alpha1.AdoptAnnotation])
			require.Empty(t, declared.GetAnnotations())
		})
	}
	live := object("Namespace", map[string]string{v1alpha1.TreeLabel: "other"}, nil)
	by := &v1alpha1.PolicyRepository{Spec: v1alpha1.PolicyRepositorySpec{ExistingNamespaces: v1alpha1.ExistingAdopt}}
	require.Equal(t, []*unstructured.Unstructured{declared},
		liveObjects{namespaceKind: {"a": live}}.followed(by, []*unstructured.Unstructured{declared}), "of another tree")
	require.Equal(t, []*unstructured.Unstructured{declared},
		liveObjects{}.followed(&v1alpha1.PolicyRepository{}, []*unstructured.Unstructured{declared}))
}

// A PolicyRepository that does not follow the tree in its status changes nothing about how the tree is compared.
func TestWhichPolicyRepositoryFollowsATree(t *testing.T) {
	t.Parallel()
	type all = []v1alpha1.PolicyRepository
	repository := func(name, tree, reason string, isSuspended bool) v1alpha1.PolicyRepository {
		one := v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{Name: name}}
		one.Spec.Suspend, one.Status.Tree = isSuspended, tree
		one.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}}
		return one
	}
	const hydrated = ", so the differences are those of 'kubectl nstpl hydrate': nstpl-sync may also adopt existing " +
		"namespaces, and leaves labels that templates set"
	const follows = "nstpl-sync follows the tree: policyrepository/one may also limit deletions, and keeps what it " +
		"did not create"
	one, taken := repository("one", "corp", "Violations", false), repository("two", "corp", "TreeTaken", false)
	rests := repository("three", "corp", "Suspended", true)
	for name, test := range map[string]struct {
		repositories all
		by, note     string
	}{
		"none":                       {nil, "", ""},
		"one":                        {all{one}, "one", follows},
		"one of another tree":        {all{repository("one", "other", "", false)}, "", ""},
		"one is suspended":           {all{rests}, "", "policyrepository/three is suspended" + hydrated},
		"the tree is of an older":    {all{taken}, "", ""},
		"one of several is followed": {all{rests, one, taken}, "one", follows},
		"several": {all{one, repository("four", "corp", "Progressing", false)}, "",
			"the tree is that of several PolicyRepositories, one, four" + hydrated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by, note := followerOf(test.repositories, "corp")
			require.Equal(t, test.note, note)
			if test.by == "" {
				require.Nil(t, by)
				return
			}
			require.Equal(t, test.by, by.Name)
		})
	}
}

// The remedy is one that the tool that applies the tree respects.
func TestHowANamespaceIsAdopted(t *testing.T) {
	t.Parallel()
	by := &v1alpha1.PolicyRepository{}
	adopts := &v1alpha1.PolicyRepository{
		Spec: v1alpha1.PolicyRepositorySpec{ExistingNamespaces: v1alpha1.ExistingAdopt},
	}
	for name, test := range map[string]struct {
		tree   string
		by     follower
		remedy string
	}{
		"kubectl":    {"", nil, "adopt it with 'kubectl nstpl hydrate DIR --adopt'"},
		"nstpl-sync": {"", by, "adopt it with 'kubectl annotate namespace a policy.nstpl.dev/adopt=true'"},
		"nstpl-sync, and it has the label of another tree": {
			"other", by, "it belongs to tree other: hand it over with " +
				"'kubectl label namespace a policy.nstpl.dev/tree=corp --overwrite', and adopt it with " +
				"'kubectl annotate namespace a policy.nstpl.dev/adopt=true'",
		},
		"nstpl-sync that adopts, and it has the label of another tree": {
			"other", adopts, "it belongs to tree other: hand it over with " +
				"'kubectl label namespace a policy.nstpl.dev/tree=corp --overwrite'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := object("Namespace", map[string]string{v1alpha1.TreeLabel: test.tree}, nil)
			live := liveObjects{namespaceKind: {"a": ns}}
			notAdopted := map[string]*hierarchy.NotAdoptedError{"a": {Namespace: "a", Tree: "corp"}}
			applied := &appliedTree{notAdopted: notAdopted}
			require.Equal(t, []treeChange{{
				kind: namespaceKind, name: "a", Action: actionLeaveAlone,
				Note: "existed before tree corp and is not adopted, so it is left alone: " + test.remedy,
			}}, applied.markNotAdopted(nil, live, test.by))
		})
	}
}
