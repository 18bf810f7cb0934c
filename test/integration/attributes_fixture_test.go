package integration_test

import (
	"context"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// attributeFixture creates rules that protect attributes.
type attributeFixture struct{ userFixture }

// attributeWebhooks returns the names of the validating webhooks for attributes.
func (s attributeFixture) attributeWebhooks() []string {
	s.t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t,
		s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.AttributeWebhookName}, configuration))
	var names []string
	for _, webhook := range configuration.Webhooks {
		if strings.HasPrefix(webhook.Name, "attributes") {
			names = append(names, webhook.Name)
		}
	}
	return names
}

// attributeRule returns a rule about an attribute whose name begins with the scope's id.
func (s attributeFixture) attributeRule(
	kind v1alpha1.AttributeKind, short, roleKind, role string, values ...string,
) v1alpha1.AttributeRule {
	return v1alpha1.AttributeRule{
		AttributeKind: kind, AttributeName: s.name(short), ProtectedValues: values,
		RoleRef: v1alpha1.RoleReference{Kind: roleKind, Name: role},
	}
}

// protectAttribute creates a rule, in a namespace or cluster-wide, and returns when it is enforced.
func (s attributeFixture) protectAttribute(namespace, short string, rule v1alpha1.AttributeRule) client.Object {
	s.t.Helper()
	var object client.Object = &v1alpha1.ClusterProtectedAttribute{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}, AttributeRule: rule,
	}
	if namespace != "" {
		object = &v1alpha1.ProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Name: s.name(short), Namespace: namespace}, AttributeRule: rule,
		}
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), object))
	s.t.Cleanup(func() { _ = s.client.Delete(context.WithoutCancel(s.t.Context()), object) })
	s.waitEnforced(object)
	return object
}

func (s attributeFixture) waitEnforced(object client.Object) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := object.DeepCopyObject().(client.Object)
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(object), found)) {
			enforced := apimeta.FindStatusCondition(attributeStatus(found).Conditions, v1alpha1.AttributeEnforced)
			if assert.NotNil(c, enforced) {
				assert.Equal(c, metav1.ConditionTrue, enforced.Status, enforced.Message)
				assert.Equal(c, found.GetGeneration(), enforced.ObservedGeneration)
			}
		}
	})
}

func attributeStatus(rule client.Object) v1alpha1.ProtectedAttributeStatus {
	if cluster, ok := rule.(*v1alpha1.ClusterProtectedAttribute); ok {
		return cluster.Status
	}
	return rule.(*v1alpha1.ProtectedAttribute).Status
}

// createAttributeRole creates a ClusterRole, or a Role in a namespace, with a permission that no other role grants.
func (s attributeFixture) createAttributeRole(namespace, short string) string {
	s.t.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{s.id}, Resources: []string{"attributes"}, Verbs: []string{"set"}}}
	var role client.Object = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}, Rules: rules}
	if namespace != "" {
		role = &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: s.name(short), Namespace: namespace}, Rules: rules}
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), role))
	return s.name(short)
}
