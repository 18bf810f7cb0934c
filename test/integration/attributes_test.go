package integration_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// attributeLocation is a place in an object that can have attributes.
type attributeLocation struct {
	short, text string
	path        []string
}

var attributeLocations = []attributeLocation{
	{"cm", "apiVersion: v1\nkind: ConfigMap\n", []string{"metadata"}},
	{"web", "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n  template:\n" +
		"    metadata: {labels: {app: web}}\n    spec: {containers: [{name: a, image: a}]}\n",
		[]string{"spec", "template", "metadata"}},
}

// newObject returns an object with an attribute in this place, or without it if the value is valueNone.
func (p attributeLocation) newObject(
	t *testing.T, namespace, name, field, key, value string,
) *unstructured.Unstructured {
	t.Helper()
	object := parseYAML(t, p.text)[0]
	object.SetNamespace(namespace)
	object.SetName(name)
	if value != valueNone {
		require.NoError(t,
			unstructured.SetNestedField(object.Object, value, append(slices.Clone(p.path), field, key)...))
	}
	return object
}

// Values of attributes. Rules that list values list the first two.
const (
	valueNone     = "none"
	valueListed1  = "one"
	valueListed2  = "two"
	valueUnlisted = "other"
)

// attributeCase is a protected attribute. If it is listed, its rule protects only the listed values.
type attributeCase struct {
	short, field string
	listed       bool
}

var attributeCases = []attributeCase{
	{"any", "labels", false}, {"listed", "labels", true}, {"noted", "annotations", true},
}

func (c attributeCase) allows(values ...string) bool {
	return !c.listed || !slices.Contains(values, valueUnlisted)
}

// Only the subjects of bindings to the role that a rule names can set the attribute, with every kind of binding and
// request.
func TestAttributesCanBeSetOnlyByHoldersOfTheRole(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	here, there := s.createNamespace("here").Name, s.createNamespace("there").Name
	clusterRole, role := s.createAttributeRole("", "setter"), s.createAttributeRole(here, "setter-here")
	scopes := []string{v1alpha1.ClusterRoleKind, v1alpha1.RoleKind}
	for _, scope := range scopes {
		for _, c := range attributeCases {
			for _, p := range attributeLocations {
				for _, value := range []string{valueNone, valueListed1, valueUnlisted} {
					object := p.newObject(t, here, attributeObjectName(p, scope, c, value), c.field,
						s.name(c.short+scope), value)
					require.NoError(t,
						s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
							client.FieldOwner("matrix")))
				}
			}
		}
	}
	for _, c := range attributeCases {
		kind := v1alpha1.LabelAttribute
		if c.field == "annotations" {
			kind = v1alpha1.AnnotationAttribute
		}
		var values []string
		if c.listed {
			values = []string{valueListed1, valueListed2}
		}
		rule := s.attributeRule(kind, c.short+v1alpha1.ClusterRoleKind, v1alpha1.ClusterRoleKind, clusterRole,
			values...)
		rule.GuardDeletion = true
		s.protectAttribute("", c.short, rule)
		rule = s.attributeRule(kind, c.short+v1alpha1.RoleKind, v1alpha1.RoleKind, role, values...)
		rule.GuardDeletion = true
		s.protectAttribute(here, c.short, rule)
	}

	type actor struct {
		client.Client
		holds string
	}
	actors := map[string]actor{"nobody": {s.newAllVerbsClient(s.name("nobody")), ""}}
	for name, binding := range map[string]struct{ namespace, roleKind, role, holds string }{
		"ClusterRoleBinding":                 {"", v1alpha1.ClusterRoleKind, clusterRole, v1alpha1.ClusterRoleKind},
		"RoleBinding to ClusterRole":         {here, v1alpha1.ClusterRoleKind, clusterRole, v1alpha1.ClusterRoleKind},
		"RoleBinding in another namespace":   {there, v1alpha1.ClusterRoleKind, clusterRole, ""},
		"RoleBinding to Role":                {here, v1alpha1.RoleKind, role, v1alpha1.RoleKind},
		"RoleBinding to a Role of that name": {there, v1alpha1.RoleKind, role, ""},
	} {
		short := invalidNameCharacters.ReplaceAllString(name, "")
		user, group, account := s.name("user-"+short), s.name("group-"+short),
			"account-"+invalidNameCharacters.ReplaceAllString(fmt.Sprint(len(name)), "")
		actors["user, "+name] = actor{s.newAllVerbsClient(user), binding.holds}
		actors["group, "+name] = actor{s.newAllVerbsClient(s.name("member-"+short), group), binding.holds}
		actors["service account, "+name] = actor{s.newServiceAccountClient(here, account), binding.holds}
		s.bindRole(binding.namespace, binding.roleKind, binding.role, userSubject(user))
		s.bindRole(binding.namespace, binding.roleKind, binding.role,
			groupSubject(group))
		s.bindRole(binding.namespace, binding.roleKind, binding.role,
			accountSubject(here, account))
	}
	t.Run("as", func(t *testing.T) {
		for name, actor := range actors {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := s.withT(t)
				if actor.holds != "" { // until the API server knows the bindings
					c, p := attributeCases[0], attributeLocations[0]
					s.eventually(func(collect *assert.CollectT) {
						probe := p.newObject(t, here, "probe", c.field, s.name(c.short+actor.holds), valueListed1)
						assert.NoError(collect, actor.Create(t.Context(), probe, client.DryRunAll))
					})
				}
				for _, scope := range scopes {
					for _, c := range attributeCases {
						for _, p := range attributeLocations {
							tryAttributeWrites(s, actor, here, scope, c, p, actor.holds == scope)
						}
					}
				}
			})
		}
	})
}

func attributeObjectName(p attributeLocation, scope string, c attributeCase, value string) string {
	return invalidNameCharacters.ReplaceAllString(fmt.Sprintf("%s-%s-%s-%s", p.short,
		map[string]string{"Role": "r", "ClusterRole": "c"}[scope], c.short, value), "-")
}

// tryAttributeWrites tries all ways to set, change and remove an attribute, by dry runs.
func tryAttributeWrites(s *testScope,
	who client.Client, namespace, scope string, c attributeCase, p attributeLocation, holds bool,
) {
	s.t.Helper()
	ctx, key := s.t.Context(), s.name(c.short+scope)
	check := func(err error, allowed bool, what ...any) {
		s.t.Helper()
		message := fmt.Sprint(append([]any{p.short, scope, c.short}, what...)...)
		if allowed {
			require.NoError(s.t, err, message)
			return
		}
		require.True(s.t, apierrors.IsForbidden(err), "%s: %v", message, err)
		require.ErrorContains(s.t, err, key, message)
	}
	for _, move := range [][2]string{
		{valueNone, valueListed1}, {valueNone, valueUnlisted}, {valueListed1, valueListed2},
		{valueListed1, valueUnlisted}, {valueUnlisted, valueListed1}, {valueListed1, valueNone},
		{valueUnlisted, valueNone}, {valueListed1, valueListed1},
		{valueUnlisted, valueUnlisted},
	} {
		from, to := move[0], move[1]
		allowed := from == to || holds && c.allows(from, to)
		name := attributeObjectName(p, scope, c, from)
		if from == valueNone {
			check(who.Create(ctx, p.newObject(s.t, namespace, "new", c.field, key, to), client.DryRunAll), allowed,
				" create ", to)
		}
		applied := p.newObject(s.t, namespace, name, c.field, key, to)
		check(who.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("matrix"),
			client.DryRunAll), allowed, " apply ", move)
		before := p.newObject(s.t, namespace, name, c.field, key, from)
		require.NoError(s.t, s.client.Get(ctx, client.ObjectKeyFromObject(before), before))
		after := before.DeepCopy()
		if path := append(slices.Clone(p.path), c.field, key); to == valueNone {
			unstructured.RemoveNestedField(after.Object, path...)
		} else {
			require.NoError(s.t, unstructured.SetNestedField(after.Object, to, path...))
		}
		after.SetLabels(setLabel(after.GetLabels(), "unprotected", "change"))
		check(who.Update(ctx, after.DeepCopy(), client.DryRunAll), allowed, " update ", move)
		check(who.Patch(ctx, after.DeepCopy(), client.MergeFrom(before), client.DryRunAll), allowed, " patch ", move)
	}
	for _, value := range []string{valueNone, valueListed1, valueUnlisted} {
		object := p.newObject(s.t, namespace, attributeObjectName(p, scope, c, value), c.field, key, valueNone)
		check(who.Delete(ctx, object, client.DryRunAll), value == valueNone || holds && c.allows(value), " delete ",
			value)
	}
}

func setLabel(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	return labels
}
