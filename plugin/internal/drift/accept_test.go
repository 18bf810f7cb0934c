package drift

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// An object that does not exist cannot be accepted. It is not said to be refused by restore because something cannot be
// read, and not said to be deleted if it was never created.
func TestAMissingObjectIsNotAccepted(t *testing.T) {
	t.Parallel()
	kind := rbacv1.SchemeGroupVersion.WithKind("Role")
	role := &unstructured.Unstructured{}
	role.SetGroupVersionKind(kind)
	role.SetName("deployer")
	const object = "role.rbac.authorization.k8s.io/deployer in namespace team-a "
	const exempt = "'kubectl nstpl exempt team-a --template t --object role.rbac.authorization.k8s.io/deployer --reason " +
		"TEXT' leaves the namespace without it"
	for name, test := range map[string]struct {
		isDeleted, isBound bool
		err                error
		want               string
	}{
		"deleted":       {true, false, nil, object + "was deleted: 'kubectl nstpl restore' creates it, and " + exempt},
		"never created": {false, false, nil, object + "does not exist: 'kubectl nstpl restore' creates it, and " + exempt},
		"bound": {true, true, nil, object + "was deleted: " + exempt + ", and it cannot be restored now: " +
			"rolebinding.rbac.authorization.k8s.io/alice, which no template declares as it is, would grant its rules"},
		"unread": {
			true, true, apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "", errors.New("no right")),
			object + "was deleted: " + exempt + ", and it is unknown whether it can be restored: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}"})
			change := populate.Change{
				Action: populate.Create, Drifted: test.isDeleted, Kind: kind, Name: "deployer", Template: "t",
				Declared: &populate.Object{Unstructured: role, Template: &v1alpha1.NamespaceTemplate{}},
			}
			p.plan.Changes = []populate.Change{change}
			binding := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "alice", Namespace: "team-a"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
			}
			if !test.isBound {
				binding.RoleRef.Name = "other"
			}
			objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, binding)
			objects.PrependReactor("list", "rolebindings", func(kubetesting.Action) (bool, runtime.Object, error) {
				return test.err != nil, nil, test.err
			})
			p.cluster.Dynamic = objects
			require.ErrorContains(t, p.missing(t.Context(), change), test.want)
		})
	}
}

// An apply changes nothing in an object that admission changes whenever it is applied. It is not as declared all the
// same.
func TestAnObjectThatAdmissionChangesIsNotAsDeclared(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"declared": "",
		"altered":  "configmap/own in namespace team-a is not as template t declares it: mutating admission changes data.a",
	} {
		p := inRollout(t, map[string]string{"own": `{"a":"declared"}`}, map[string]string{"own": `{"a":"declared"}`})
		change, err := p.find(t.Context(), "configmap/own")
		require.NoError(t, err)
		live := change.Declared.DeepCopy()
		live.Object["data"] = map[string]any{"a": value}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`),
		}})
		objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
		objects.PrependReactor("*", "configmaps", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, live.DeepCopy(), nil
		})
		p.cluster.Dynamic = objects
		changes, err := p.acceptable(t.Context(), change)
		require.Empty(t, changes)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}
