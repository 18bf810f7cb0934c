package integration_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// testUser is a user with a client certificate, so that the name can be any text. By default the user may read and
// write namespaces and ConfigMaps, and has none of nstpl's own verbs.
type testUser struct {
	kubernetes.Interface
	scope userFixture
	name  string
}

// userFixture creates users and grants them permissions.
type userFixture struct{ *scope }

// newUser returns a user, and returns when the API server knows the user's permissions.
func (s userFixture) newUser(name string, groups ...string) testUser {
	s.t.Helper()
	s.grant(s.name("people"), groupSubject(s.name("people")), policyRule("get list create update patch delete", "",
		"namespaces namespaces/status namespaces/finalize configmaps resourcequotas/status"))
	config, err := s.controlPlane.UserConfig(name, append(groups, s.name("people"))...)
	require.NoError(s.t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	u := testUser{Interface: clients, scope: s, name: name}
	s.eventually(func(c *assert.CollectT) {
		_, err := u.CoreV1().Namespaces().List(s.t.Context(), metav1.ListOptions{Limit: 1})
		assert.NoError(c, err)
	})
	return u
}

// grant gives the user a verb on a resource in all namespaces, for some names or for all.
func (u testUser) grant(verb, resource string, names ...string) {
	u.scope.t.Helper()
	u.scope.grant(u.scope.name(verb), userSubject(u.name), rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group, ""}, Resources: []string{resource}, ResourceNames: names,
		Verbs: []string{verb},
	})
}

// grantUseOfAllTemplates gives the user the verb use on all templates. It returns when the user may change labels
// through subresources.
func (u testUser) grantUseOfAllTemplates() {
	u.scope.t.Helper()
	group, templates := v1alpha1.GroupVersion.Group, v1alpha1.NamespaceTemplates.Resource
	u.scope.grant(u.scope.name("use-all-"+u.name), userSubject(u.name), policyRule("use", group, templates))
	u.scope.eventually(func(c *assert.CollectT) {
		assert.True(c, u.scope.isAllowedInGroup(u.name, "", "use", group, templates))
	})
}

// createNamespace creates a namespace of the scope with labels and annotations.
func (u testUser) createNamespace(short string, labels, annotations map[string]string) (*corev1.Namespace, error) {
	ns := u.scope.newNamespace(short)
	ns.Annotations = annotations
	maps.Copy(ns.Labels, labels)
	return u.CoreV1().Namespaces().Create(u.scope.t.Context(), ns, metav1.CreateOptions{})
}

// metadataWrites returns all the ways in which a client can change a label or an annotation of a namespace, by name. A
// nil value removes the key.
func (u testUser) metadataWrites(field, key string, value *string) map[string]func(name string) error {
	s := u.scope
	merge, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}})
	require.NoError(s.t, err)
	patch := func(kind types.PatchType, body []byte, subresources ...string) func(string) error {
		return func(name string) error {
			options := metav1.PatchOptions{}
			if kind == types.ApplyPatchType {
				options = metav1.PatchOptions{FieldManager: "somebody", Force: new(true)}
			}
			_, err := u.CoreV1().Namespaces().Patch(s.t.Context(), name, kind, body, options, subresources...)
			return err
		}
	}
	put := func(subresource string) func(string) error {
		update := func(name string) error {
			ns, err := u.CoreV1().Namespaces().Get(s.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			setMetadata(&ns.ObjectMeta, field, key, value)
			request := u.CoreV1().RESTClient().Put().Resource("namespaces").Name(name).Body(ns)
			if subresource != "" {
				request = request.SubResource(subresource)
			}
			return request.Do(s.t.Context()).Error()
		}
		return func(name string) error {
			// the operator writes to the namespace, too
			return retry.OnError(wait.Backoff{Steps: 100}, apierrors.IsConflict, func() error { return update(name) })
		}
	}
	writes := map[string]func(string) error{
		"merge patch":           patch(types.MergePatchType, merge),
		"strategic merge patch": patch(types.StrategicMergePatchType, merge),
		"merge patch of status": patch(types.MergePatchType, merge, "status"),
		"update":                put(""), "update of status": put("status"), "update of finalize": put("finalize"),
	}
	if value != nil {
		pointer := "/metadata/" + field + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		operations, err := json.Marshal([]map[string]any{{"op": "add", "path": pointer, "value": *value}})
		require.NoError(s.t, err)
		writes["JSON patch"] = patch(types.JSONPatchType, operations)
		writes["apply"] = func(name string) error {
			body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace",
				"metadata": map[string]any{"name": name, field: map[string]any{key: value}}})
			require.NoError(s.t, err)
			return patch(types.ApplyPatchType, body)(name)
		}
	}
	return writes
}

// setMetadata sets a label or an annotation, or removes it if the value is nil.
func setMetadata(meta *metav1.ObjectMeta, field, key string, value *string) {
	values := &meta.Annotations
	if field == "labels" {
		values = &meta.Labels
	}
	if *values == nil {
		*values = map[string]string{}
	}
	if delete(*values, key); value != nil {
		(*values)[key] = *value
	}
}

// isSubresourceWrite reports whether one of the metadataWrites is a request to a subresource.
func isSubresourceWrite(write string) bool { return strings.Contains(write, " of ") }

// trySubresource tries to change a label or an annotation of a namespace through a subresource, by a dry run. A nil
// value removes the key.
func (u testUser) trySubresource(subresource, name, field, key string, value *string) error {
	ctx, namespaces := u.scope.t.Context(), u.CoreV1().Namespaces()
	if subresource == "status" {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}})
		require.NoError(u.scope.t, err)
		_, err = namespaces.Patch(ctx, name, types.MergePatchType, body,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresource)
		return err
	}
	ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	require.NoError(u.scope.t, err)
	setMetadata(&ns.ObjectMeta, field, key, value)
	_, err = namespaces.Finalize(ctx, ns, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// expectAllDenied fails unless the API server denies all the ways to change a label or an annotation of a namespace,
// with an error that contains the texts.
func (u testUser) expectAllDenied(ns *corev1.Namespace, field, key string, value *string, texts ...string) {
	u.scope.t.Helper()
	for name, write := range u.metadataWrites(field, key, value) {
		err := write(ns.Name)
		require.True(u.scope.t, apierrors.IsForbidden(err), "%s: %v", name, err)
		for _, text := range texts {
			require.ErrorContains(u.scope.t, err, text, name)
		}
	}
}

// expectUseDenied fails unless the API server denies all the ways to have a namespace selected by a template.
// Subresources do not look up the template.
func (u testUser) expectUseDenied(
	ns *corev1.Namespace, field, key string, value *string, template *v1alpha1.NamespaceTemplate,
) {
	u.scope.t.Helper()
	for name, write := range u.metadataWrites(field, key, value) {
		err := write(ns.Name)
		require.True(u.scope.t, apierrors.IsForbidden(err), "%s: %v", name, err)
		if isSubresourceWrite(name) {
			require.ErrorContains(u.scope.t, err, "ask for the verb use on all namespacetemplates", name)
		} else {
			require.ErrorContains(u.scope.t, err, "may not use NamespaceTemplate "+template.Name, name)
		}
	}
}

// impersonate returns clients of a user who has no permissions but those that bindings grant.
func (cluster *testCluster) impersonate(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := cluster.controlPlane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients
}

// newUserClient returns a client of a user, who may have no permissions yet.
func (cluster *testCluster) newUserClient(name string, groups ...string) (client.Client, error) {
	config, err := cluster.controlPlane.UserConfig(name, groups...)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: cluster.client.Scheme(), Mapper: cluster.client.RESTMapper()})
}

// newReadyClient returns the client of a configuration when its user can list namespaces.
func (s userFixture) newReadyClient(config *rest.Config) client.Client {
	s.t.Helper()
	ready, err := client.New(config, client.Options{Scheme: s.client.Scheme(), Mapper: s.client.RESTMapper()})
	require.NoError(s.t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, ready.List(s.t.Context(), &corev1.NamespaceList{}, client.Limit(1)))
	})
	return ready
}

// newWarnedUser returns a client of a user, and the warnings that the API server sends to it. The user can list
// namespaces.
func (s userFixture) newWarnedUser(name string, groups ...string) (client.Client, *warningRecorder) {
	s.t.Helper()
	config, err := s.controlPlane.UserConfig(name, groups...)
	require.NoError(s.t, err)
	warnings := &warningRecorder{}
	config.WarningHandlerWithContext = warnings
	return s.newReadyClient(config), warnings
}

// newAllVerbsClient returns a client of a user who has all verbs on all resources, and none of the scope's other roles.
func (s userFixture) newAllVerbsClient(name string, groups ...string) client.Client {
	s.t.Helper()
	config, err := s.controlPlane.UserConfig(name, append(groups, s.allVerbsGroup())...)
	require.NoError(s.t, err)
	return s.newReadyClient(config)
}

// allVerbsGroup returns a group that has all verbs on all resources.
func (s userFixture) allVerbsGroup() string {
	s.t.Helper()
	s.grant(s.name("everybody"), groupSubject(s.name("everybody")), policyRule("*", "*", "*"))
	return s.name("everybody")
}

// newServiceAccountClient creates a ServiceAccount that has all verbs on all resources, and returns a client with its
// token.
func (s userFixture) newServiceAccountClient(namespace, name string) client.Client {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	require.NoError(s.t, s.client.Create(s.t.Context(), account))
	token := &authenticationv1.TokenRequest{}
	require.NoError(s.t, s.client.SubResource("token").Create(s.t.Context(), account, token))
	s.bindRole("", v1alpha1.ClusterRoleKind, s.allVerbsGroup(), accountSubject(namespace, name))
	config := rest.AnonymousClientConfig(s.controlPlane.RESTConfig())
	config.BearerToken = token.Status.Token
	return s.newReadyClient(config)
}

// templatesRule lets a user write NamespaceTemplates.
var templatesRule = policyRule("get list watch create update patch delete deletecollection",
	v1alpha1.GroupVersion.Group, "namespacetemplates")

// newTemplateAuthor returns a client of a user who may write templates, and has the rules in all namespaces.
func (s userFixture) newTemplateAuthor(short string, rules ...rbacv1.PolicyRule) client.Client {
	s.t.Helper()
	return s.newUserWithRules(short, append(slices.Clone(rules), templatesRule)...)
}

// newUserWithRules returns a client of a user who has the rules in all namespaces, and no others. One of the rules must
// let the user create templates: it returns when the API server knows that.
func (s userFixture) newUserWithRules(short string, rules ...rbacv1.PolicyRule) client.Client {
	s.t.Helper()
	name := s.name(short)
	require.NoError(s.t,
		s.client.Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
	s.bindRole("", v1alpha1.ClusterRoleKind, name, userSubject(name))
	user, err := s.newUserClient(name)
	require.NoError(s.t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowedInGroup(name, "", "create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	})
	return user
}

// newPodAdmin returns clients of a user who has all verbs on pods and namespaces, and no other permissions.
func (s userFixture) newPodAdmin(name string) (client.Client, kubernetes.Interface) {
	s.t.Helper()
	s.grant(s.name(name), userSubject(name), policyRule("*", "",
		"namespaces pods bindings pods/binding pods/ephemeralcontainers pods/eviction pods/resize pods/status"))
	config, err := s.controlPlane.UserConfig(name)
	require.NoError(s.t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	return s.newReadyClient(config), clients
}

// grant creates a ClusterRole with a rule and binds it, unless they exist.
func (s userFixture) grant(name string, subject rbacv1.Subject, rule rbacv1.PolicyRule) {
	s.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	require.NoError(s.t, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), role)))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	require.NoError(s.t, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), binding)))
}

// bindRole binds a role to a subject, in a namespace or, if that is empty, in all.
func (s userFixture) bindRole(namespace, roleKind, role string, subject rbacv1.Subject) {
	s.t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: roleKind, Name: role}
	var binding client.Object = &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.id + "-"}, RoleRef: ref, Subjects: []rbacv1.Subject{subject},
	}
	if namespace != "" {
		binding = &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: s.id + "-", Namespace: namespace}, RoleRef: ref,
			Subjects: []rbacv1.Subject{subject},
		}
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), binding))
}

// bindClusterRole binds a ClusterRole to a user in all namespaces.
func (s userFixture) bindClusterRole(user, role string) {
	s.t.Helper()
	s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(user))
}

// policyRule returns a rule. Verbs and resources are separated by spaces.
func policyRule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs),
		ResourceNames: names,
	}
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func accountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// isAllowed asks the API server whether a user has a verb on a resource of the core group in a namespace.
func (s userFixture) isAllowed(user, namespace, verb, resource string) bool {
	s.t.Helper()
	return s.isAllowedInGroup(user, namespace, verb, "", resource)
}

func (s userFixture) isAllowedInGroup(user, namespace, verb, group, resource string) bool {
	s.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource,
		},
	}}
	require.NoError(s.t, s.client.Create(s.t.Context(), review))
	return review.Status.Allowed
}

// expectDenied fails unless an error is a denial of admission or of validation.
func (s userFixture) expectDenied(err error) {
	s.t.Helper()
	require.True(s.t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
	s.t.Logf("denied: %.400s", err)
}

// expectForbidden fails unless an error is a denial that contains a text.
func expectForbidden(t *testing.T, err error, text string) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, text)
}

// warningRecorder records the warnings that the API server sends to a client. It is safe for concurrent use.
type warningRecorder struct {
	mu    sync.Mutex
	texts []string
}

func (w *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// drain returns the warnings since the last call.
func (w *warningRecorder) drain() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// setValue sets a label or an annotation of a namespace, as soon as the operator knows that the user may.
func (u testUser) setValue(ns *corev1.Namespace, field, key string, value *string) {
	u.scope.t.Helper()
	u.scope.eventually(func(c *assert.CollectT) {
		assert.NoError(c, u.metadataWrites(field, key, value)["merge patch"](ns.Name))
	})
}

// createConfigMap creates a ConfigMap in a namespace.
func (u testUser) createConfigMap(ns *corev1.Namespace, name string) error {
	_, err := u.CoreV1().ConfigMaps(ns.Name).Create(u.scope.t.Context(), newConfigMap(ns.Name, name), metav1.CreateOptions{})
	return err
}

// newProgram returns the client of a ServiceAccount that may do everything, such as that of Flux.
func (s userFixture) newProgram() client.Client {
	s.t.Helper()
	program, _ := s.newWarnedUser("system:serviceaccount:"+s.name("ci")+":program", "system:masters")
	return program
}

func (u testUser) createsNamespace(ns *corev1.Namespace) error {
	_, err := u.CoreV1().Namespaces().Create(u.scope.t.Context(), ns, metav1.CreateOptions{})
	return err
}

func (u testUser) patchesNamespace(name, patch string, subresources ...string) error {
	_, err := u.CoreV1().Namespaces().Patch(u.scope.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	return err
}
