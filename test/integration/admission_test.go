package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

func TestAdmissionReplacesForgedCreators(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("who", "$(CREATOR)"))
	jane := s.newUser(s.name("jane"))
	expectCreator := func(t *testing.T, name, creator string) {
		t.Helper()
		ns := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, ns))
		require.Equal(t, creator, ns.Annotations[v1alpha1.CreatorAnnotation])
	}
	ns, err := jane.createNamespace("a", nil, map[string]string{v1alpha1.CreatorAnnotation: "admin"})
	require.NoError(t, err)
	require.Equal(t, jane.name, ns.Annotations[v1alpha1.CreatorAnnotation])

	t.Run("all requests that create a namespace set its creator", func(t *testing.T) {
		s := s.withT(t)
		plain, err := jane.createNamespace("plain", nil, nil)
		require.NoError(t, err)
		require.Equal(t, jane.name, plain.Annotations[v1alpha1.CreatorAnnotation])
		generated, err := jane.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				GenerateName: s.id + "-", Annotations: map[string]string{v1alpha1.CreatorAnnotation: "admin"},
			}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, jane.name, generated.Annotations[v1alpha1.CreatorAnnotation])
		require.NoError(t,
			jane.metadataWrites("annotations", v1alpha1.CreatorAnnotation, new("admin"))["apply"](s.name("applied")))
		expectCreator(t, s.name("applied"), jane.name)
	})

	t.Run("the creator cannot be changed later", func(t *testing.T) {
		s := s.withT(t)
		older := s.preexistingNamespace()
		// a JSON patch can only add to a map that exists
		s.patchNamespace(older, `{"metadata": {"annotations": {"a": "b"}}}`)
		// The updates below replace the namespace as it was read, so the operator must not write in between.
		s.waitPopulated(ns)
		for _, who := range []testUser{jane, s.newUser(s.name("another"))} {
			for _, value := range []*string{new("admin"), new(""), nil} {
				for way, try := range who.metadataWrites("annotations", v1alpha1.CreatorAnnotation, value) {
					require.NoError(t, try(ns.Name), way)
					expectCreator(t, ns.Name, jane.name)
					require.NoError(t, try(older.Name), way)
					expectCreator(t, older.Name, "")
				}
			}
		}
		s.waitPresent(ns, configMap("who", jane.name))
	})
}

// A tool that restores namespaces, or an administrator, may name another user as the creator, and then the user gets what
// templates give to creators.
func TestCreatorIsSetByUsersWithTheVerb(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("who", "$(CREATOR)"))
	jane, velero := s.newUser(s.name("jane")), s.newUser("system:serviceaccount:"+s.id+":velero")
	velero.grant(v1alpha1.VerbSetCreator, v1alpha1.NamespaceTemplates.Resource)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowedInGroup(velero.name, "", v1alpha1.VerbSetCreator, v1alpha1.GroupVersion.Group,
			v1alpha1.NamespaceTemplates.Resource))
	})

	restored, err := velero.createNamespace("restored", nil, map[string]string{v1alpha1.CreatorAnnotation: jane.name})
	require.NoError(t, err)
	require.Equal(t, jane.name, restored.Annotations[v1alpha1.CreatorAnnotation])
	s.waitPresent(restored, configMap("who", jane.name))
	plain, err := velero.createNamespace("plain", nil, nil)
	require.NoError(t, err)
	require.Equal(t, velero.name, plain.Annotations[v1alpha1.CreatorAnnotation])

	expectCreator := func(creator string) {
		t.Helper()
		ns := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(restored), ns))
		require.Equal(t, creator, ns.Annotations[v1alpha1.CreatorAnnotation])
	}
	for _, value := range []*string{nil, new("")} {
		for way, try := range velero.metadataWrites("annotations", v1alpha1.CreatorAnnotation, value) {
			require.NoError(t, try(restored.Name), way)
			expectCreator(jane.name) // no user removes it by replacing the object
		}
	}
	require.NoError(t, jane.metadataWrites("annotations", v1alpha1.CreatorAnnotation, new("mallory"))["merge patch"](restored.Name))
	expectCreator(jane.name)
	for way, try := range velero.metadataWrites("annotations", v1alpha1.CreatorAnnotation, new("joe-"+s.id)) {
		require.NoError(t, try(restored.Name), way)
		expectCreator("joe-" + s.id)
	}
	s.waitPresent(restored, configMap("who", "joe-"+s.id))
}

func TestAdmissionAcceptsAnyCreatorName(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	for short, name := range map[string]string{
		"quotes":  `o'neill "the" \`,
		"slashes": "https://issuer.example.com/users#1/..",
		"long":    strings.Repeat("long name ", 30),
		"account": "system:serviceaccount:ci:deployer",
		"unicode": "Ünïcödé 世界",
		"token":   "$(NAMESPACE)",
	} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			s.createTemplate("defaults", configMap("who", "$(CREATOR)"))
			user := s.newUser(name)
			ns, err := user.createNamespace("a", nil, nil)
			require.NoError(t, err)
			require.Equal(t, name, ns.Annotations[v1alpha1.CreatorAnnotation])
			s.waitPresent(ns, configMap("who", name))
		})
	}
}

func TestAdmissionRequiresUseOfSelectingTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	putOn := s.createTemplate("put-on", configMap("a", "v"), requiresUse, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels["class"] = "privileged"
	})
	takenOff := s.createTemplate("taken-off", configMap("b", "v"), requiresUse,
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
				{Key: "restricted", Operator: metav1.LabelSelectorOpDoesNotExist},
			}
		})
	jane := s.newUser(s.name("jane"))
	restricted := map[string]string{"restricted": ""}
	s.eventually(func(c *assert.CollectT) { // until the API server enforces both templates
		_, err := jane.createNamespace("never", map[string]string{"class": "privileged"}, nil)
		assert.ErrorContains(c, err, takenOff.Name)
		_, err = jane.createNamespace("never", map[string]string{"class": "privileged", "restricted": ""}, nil)
		assert.ErrorContains(c, err, putOn.Name)
	})
	ns, err := jane.createNamespace("a", restricted, nil)
	require.NoError(t, err)

	t.Run("new namespaces need the verb", func(t *testing.T) {
		s := s.withT(t)
		_, err := jane.createNamespace("bare", nil, nil)
		expectForbidden(t, err, "may not use NamespaceTemplate "+takenOff.Name)
		require.ErrorContains(t, err, "ask for the verb use on namespacetemplates/"+takenOff.Name)
		_, err = jane.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "kube-" + s.id, Labels: map[string]string{testLabel: s.id},
		}}, metav1.CreateOptions{})
		expectForbidden(t, err, "may not use NamespaceTemplate "+takenOff.Name)
		require.ErrorContains(t, err, "ask for the verb use on namespacetemplates/"+takenOff.Name)
	})

	t.Run("changes of labels need the verb", func(t *testing.T) {
		jane.expectUseDenied(ns, "labels", "class", new("privileged"), putOn)
		jane.expectUseDenied(ns, "labels", "restricted", nil, takenOff)
		require.NoError(t, jane.metadataWrites("labels", "other", new("label"))["merge patch"](ns.Name))
	})

	t.Run("disabled templates need the verb too", func(t *testing.T) {
		s := s.withT(t)
		s.updateTemplate(putOn, func(template *v1alpha1.NamespaceTemplate) {
			template.Annotations[v1alpha1.TemplateApplyAnnotation] = v1alpha1.TemplateApplyDisable
		})
		jane.expectUseDenied(ns, "labels", "class", new("privileged"), putOn)
		s.updateTemplate(putOn, func(template *v1alpha1.NamespaceTemplate) {
			delete(template.Annotations, v1alpha1.TemplateApplyAnnotation)
		})
	})

	t.Run("opting out and in again needs the verb", func(t *testing.T) {
		s := s.withT(t)
		out := s.createNamespace("out", withLabel("class", "privileged"), withLabel("restricted", ""),
			func(ns *corev1.Namespace) {
				ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
			})
		jane.grant("optout", v1alpha1.NamespaceTemplates.Resource)
		s.eventually(func(c *assert.CollectT) {
			err := jane.metadataWrites("annotations", v1alpha1.OptOutAnnotation, nil)["merge patch"](out.Name)
			assert.ErrorContains(c, err, "may not use NamespaceTemplate "+putOn.Name)
		})
		jane.expectUseDenied(out, "annotations", v1alpha1.OptOutAnnotation, nil, putOn)
		partly := s.createNamespace("partly", withLabel("class", "privileged"), withLabel("restricted", ""),
			func(ns *corev1.Namespace) {
				ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "other, " + putOn.Name}
			})
		for _, value := range []*string{nil, new("false"), new("other"), new(takenOff.Name)} {
			jane.expectUseDenied(partly, "annotations", v1alpha1.OptOutAnnotation, value, putOn)
		}
		more := "another," + putOn.Name
		require.NoError(t, jane.metadataWrites("annotations", v1alpha1.OptOutAnnotation, &more)["merge patch"](partly.Name))
	})

	t.Run("the verb on one template does not count for another", func(t *testing.T) {
		s := s.withT(t)
		jane.grant("use", v1alpha1.NamespaceTemplates.Resource, putOn.Name)
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, jane.metadataWrites("labels", "class", new("privileged"))["merge patch"](ns.Name))
		})
		s.waitPresent(ns, configMap("a", "v"))
		s.waitPopulated(ns) // then the operator no longer writes to the namespace, so that updates do not conflict
		jane.expectUseDenied(ns, "labels", "restricted", nil, takenOff)
	})

	t.Run("other changes of selected namespaces do not need the verb", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t,
			s.newUser(s.name("another")).metadataWrites("labels", "other", new("change"))["update"](ns.Name))
	})
}

func TestAdmissionRequiresOptOutVerb(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	jane := s.newUser(s.name("jane"))
	out := map[string]string{v1alpha1.OptOutAnnotation: "true"}
	_, err := jane.createNamespace("a", nil, out)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "ask for the verb optout on namespacetemplates")
	ns, err := jane.createNamespace("a", nil, map[string]string{v1alpha1.OptOutAnnotation: "false"})
	require.NoError(t, err)
	for _, value := range []*string{new("true"), new(""), nil} {
		jane.expectAllDenied(ns, "annotations", v1alpha1.OptOutAnnotation, value,
			"ask for the verb optout on namespacetemplates")
	}
	// Some templates need the same permission as all.
	some := map[string]string{v1alpha1.OptOutAnnotation: "budget,quota"}
	_, err = jane.createNamespace("some", nil, some)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "ask for the verb optout on namespacetemplates")
	jane.expectAllDenied(ns, "annotations", v1alpha1.OptOutAnnotation, new("budget"),
		"ask for the verb optout on namespacetemplates")
	partly := s.createNamespace("partly", func(ns *corev1.Namespace) { ns.Annotations = some })
	for _, value := range []*string{new("true"), new("budget"), new("false"), nil} {
		jane.expectAllDenied(partly, "annotations", v1alpha1.OptOutAnnotation, value,
			"ask for the verb optout on namespacetemplates")
	}
	jane.grant("optout", v1alpha1.NamespaceTemplates.Resource)
	s.eventually(func(c *assert.CollectT) {
		_, err := jane.createNamespace("b", nil, out)
		assert.NoError(c, err)
	})
	_, err = jane.createNamespace("some", nil, some)
	require.NoError(t, err)
	require.NoError(t, jane.metadataWrites("annotations", v1alpha1.OptOutAnnotation, nil)["merge patch"](s.name("b")))
}

func TestAdmissionOptsOutNamespacesOfListedUsers(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	s.createTemplate("defaults", configMap("a", "v"))
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.AutoOptOutConfigMap, Namespace: v1alpha1.OperatorNamespace,
	}}
	require.NoError(t,
		s.client.Patch(t.Context(), list,
			mergePatch(
				`{"data": {"users": "\n  system:serviceaccount:ci:builder \n\nrobot\n", "groups": "robots\n\n"}}`)))
	listed := []testUser{s.newUser("system:serviceaccount:ci:builder"), s.newUser("robot"), s.newUser("r2d2", "robots")}
	s.eventually(func(c *assert.CollectT) {
		probe, err := listed[2].CoreV1().Namespaces().Create(t.Context(), s.newNamespace("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if assert.NoError(c, err) {
			assert.Equal(c, "true", probe.Annotations[v1alpha1.OptOutAnnotation])
		}
	})
	for i, who := range listed {
		ns, err := who.createNamespace(fmt.Sprint(i), nil, nil)
		require.NoError(t, err, who.name)
		require.Equal(t, "true", ns.Annotations[v1alpha1.OptOutAnnotation], who.name)
		s.eventually(func(c *assert.CollectT) { // the namespace is not held, whichever policy was evaluated first
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
			assert.NotContains(c, ns.Labels, v1alpha1.InitializingLabel)
		})
		who.grantUseOfAllTemplates() // so that no other policy denies opting in through subresources
		who.expectAllDenied(ns, "annotations", v1alpha1.OptOutAnnotation, nil, "optout")
	}
	ns, err := s.newUser("jane").createNamespace("populated", nil, nil)
	require.NoError(t, err)
	s.waitPopulated(ns)

	// If the lists or the whole ConfigMap are missing, namespaces can be created all the same.
	require.NoError(t,
		s.client.Patch(t.Context(), list, mergePatch(`{"data": null}`)))
	s.eventually(func(c *assert.CollectT) {
		probe, err := listed[1].CoreV1().Namespaces().Create(t.Context(), s.newNamespace("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if assert.NoError(c, err) {
			assert.NotContains(c, probe.Annotations, v1alpha1.OptOutAnnotation)
		}
	})
	s.delete(list)
	_, err = listed[1].createNamespace("without", nil, nil)
	require.NoError(t, err)
}

func TestAdmissionRequiresInitializeVerb(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	jane := s.newUser(s.name("jane"))
	ns, err := jane.createNamespace("a", nil, nil)
	require.NoError(t, err)
	require.Equal(t, "true", ns.Labels[v1alpha1.InitializingLabel])
	require.Equal(t, s.name("network"), ns.Annotations[v1alpha1.PendingAnnotation])
	jane.grantUseOfAllTemplates() // so that no other policy denies changes of labels
	// A role in the namespace with all verbs is not enough.
	require.NoError(t, s.client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "owner"}, Subjects: []rbacv1.Subject{userSubject(jane.name)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: v1alpha1.ClusterRoleKind, Name: "cluster-admin"},
	}))
	s.eventually(func(c *assert.CollectT) { // until the API server knows that
		_, err := jane.CoreV1().Secrets(ns.Name).List(t.Context(), metav1.ListOptions{})
		assert.NoError(c, err)
	})
	err = jane.CoreV1().RESTClient().Post().Namespace(ns.Name).Resource("configmaps").Body(newConfigMap("", "mine")).
		MaxRetries(0).Do(t.Context()).Error()
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	const denial = "ask for the verb initialize on namespaces"
	for _, value := range []*string{nil, new("false"), new("")} {
		jane.expectAllDenied(ns, "labels", v1alpha1.InitializingLabel, value, denial)
	}
	for _, value := range []*string{
		nil, new(""), new(s.name("network") + ",another.example.com"), new("namespace-template"),
	} {
		jane.expectAllDenied(ns, "annotations", v1alpha1.PendingAnnotation, value, denial)
	}
	s.finishInitialization(ns)
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		assert.NotContains(c, ns.Labels, v1alpha1.InitializingLabel)
	})
	jane.expectAllDenied(ns, "labels", v1alpha1.InitializingLabel, new("true"), denial)
}

func TestAdmissionMarksSelectedNamespacesAsInitializing(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	matching := s.createTemplate("defaults", configMap("a", "v"))
	s.createTemplate("off", configMap("b", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel("off", s.id)
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	})
	s.eventually(func(c *assert.CollectT) {
		probe := s.newNamespace("probe")
		assert.NoError(c, s.client.Create(t.Context(), probe, client.DryRunAll))
		assert.Contains(c, probe.Labels, v1alpha1.InitializingLabel, "until %s is known", matching.Name)
	})
	jane := s.newUser(s.name("jane"))
	dryRun := func(name string, labels, annotations map[string]string) *corev1.Namespace {
		t.Helper()
		ns, err := jane.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels, Annotations: annotations,
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return ns
	}
	scopeLabels := map[string]string{testLabel: s.id}
	with := func(key, value string) map[string]string { return map[string]string{testLabel: s.id, key: value} }
	expectInitializing := func(ns *corev1.Namespace, pending string) {
		t.Helper()
		require.Equal(t, "true", ns.Labels[v1alpha1.InitializingLabel])
		require.Equal(t, pending, ns.Annotations[v1alpha1.PendingAnnotation])
	}
	expectInitialized := func(ns *corev1.Namespace) {
		t.Helper()
		require.NotContains(t, ns.Labels, v1alpha1.InitializingLabel)
		require.NotContains(t, ns.Annotations, v1alpha1.PendingAnnotation)
	}
	expectInitializing(dryRun(s.name("a"), scopeLabels, nil), "namespace-template")
	expectInitialized(dryRun(s.name("a"), map[string]string{"other": "label"}, nil))
	expectInitialized(dryRun(s.name("a"), map[string]string{"off": s.id}, nil))
	// Names that begin like those of Kubernetes' own namespaces are not special, because those namespaces exist
	// already.
	expectInitializing(dryRun("kube-"+s.id, scopeLabels, nil), "namespace-template")
	expectInitializing(dryRun("kube-system-"+s.id, scopeLabels, nil), "namespace-template")
	generated, err := jane.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "kube-system", Labels: scopeLabels,
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	expectInitializing(generated, "namespace-template")
	// The label with the name is that of no other namespace once the name is generated.
	s.createTemplate("others", configMap("c", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel("others", s.id)
		template.Spec.Namespaces.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"monitoring"},
		}}
	})
	others := map[string]string{"others": s.id}
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, dryRun(s.name("a"), others, nil).Labels, v1alpha1.InitializingLabel)
	})
	others[corev1.LabelMetadataName] = "monitoring"
	generated, err = jane.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: s.name("x"), Labels: others,
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	expectInitializing(generated, "namespace-template")
	// A label or annotation in the request cannot prevent initialization.
	expectInitializing(dryRun(s.name("a"), with(v1alpha1.InitializingLabel, "false"),
		map[string]string{v1alpha1.PendingAnnotation: ""}), "namespace-template")
	expectInitializing(dryRun(s.name("a"), scopeLabels,
		map[string]string{v1alpha1.PendingAnnotation: "namespace-template"}),
		"namespace-template")
	long := dryRun(s.name("a"), scopeLabels,
		map[string]string{v1alpha1.PendingAnnotation: strings.Repeat(",", 200_000)})
	expectInitializing(long, "namespace-template")
}

func TestAdmissionProtectsOperatorMetadata(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("a", "v"))
	jane := s.newUser(s.name("jane"))
	ns, err := jane.createNamespace("a", nil, nil)
	require.NoError(t, err)
	s.waitPopulated(ns)
	jane.grantUseOfAllTemplates() // so that no other policy denies changes of labels
	const denial = "needs the verb patch on namespacetemplates"

	t.Run("labels and annotations of namespaces", func(t *testing.T) {
		s := s.withT(t)
		jane.expectAllDenied(ns, "labels", "x.tree.policy.nstpl.dev/depth", new("1"), denial)
		for _, key := range []string{"policy.nstpl.dev/scc.uid-range", "policy.nstpl.dev/scc.mcs"} {
			jane.expectAllDenied(ns, "annotations", key, new("1"), denial)
			s.patchNamespace(ns, `{"metadata": {"annotations": {"`+key+`": "1"}}}`)
			jane.expectAllDenied(ns, "annotations", key, nil, denial)
			s.patchNamespace(ns, `{"metadata": {"annotations": {"`+key+`": null}}}`)
		}
		jane.expectAllDenied(ns, "annotations", v1alpha1.ExistingAnnotation, new("1"), denial)
		_, err := jane.createNamespace("b", map[string]string{"x.tree.policy.nstpl.dev/depth": "0"}, nil)
		require.ErrorContains(t, err, denial)
	})

	t.Run("labels and annotations of populated objects", func(t *testing.T) {
		s := s.withT(t)
		patch := func(name, body string) error {
			_, err := jane.CoreV1().ConfigMaps(ns.Name).Patch(t.Context(), name, types.MergePatchType, []byte(body),
				metav1.PatchOptions{})
			return err
		}
		_, err := jane.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		require.NoError(t, err)
		const ours = `{"metadata": {"labels": {"policy/namespace-template-name": %q}}}`
		require.ErrorContains(t, patch("mine", fmt.Sprintf(ours, s.name("defaults"))), denial+"/"+s.name("defaults"))
		labelled := newConfigMap("", "labelled")
		labelled.Labels = map[string]string{v1alpha1.TemplateNameLabel: "any"}
		_, err = jane.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), labelled, metav1.CreateOptions{})
		require.ErrorContains(t, err, denial+"/any")
		require.ErrorContains(t, patch("a", fmt.Sprintf(ours, "any")), denial)
		// An empty name would stand for any template.
		labelled.Labels[v1alpha1.TemplateNameLabel] = ""
		_, err = jane.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), labelled, metav1.CreateOptions{})
		require.ErrorContains(t, err, denial+" in the API group")
		require.ErrorContains(t, patch("mine", fmt.Sprintf(ours, "")), denial+" in the API group")
		require.ErrorContains(t, patch("a", fmt.Sprintf(ours, "")), denial+", namespacetemplates/"+s.name("defaults"))
		require.ErrorContains(t, patch("a", `{"metadata": {"labels": null}}`), denial)
		for _, key := range []string{
			v1alpha1.HashAnnotation, v1alpha1.AdoptedAnnotation, v1alpha1.UnownedAnnotation, v1alpha1.CopyOfAnnotation,
		} {
			require.ErrorContains(t, patch("a", `{"metadata": {"annotations": {"`+key+`": "x"}}}`), denial)
		}
		require.ErrorContains(t, patch("a", `{"metadata": {"annotations": null}}`), denial)
		// Users may change all other metadata, and users who may patch the template may set its label.
		require.NoError(t, patch("a", `{"metadata": {"labels": {"mine": "too"}}, "data": {"more": "v"}}`))
		jane.grant("patch", v1alpha1.NamespaceTemplates.Resource, s.name("defaults"))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, patch("mine", fmt.Sprintf(ours, s.name("defaults"))))
		})
		require.ErrorContains(t, patch("mine", fmt.Sprintf(ours, "")), denial, "the user may patch only one template")
		require.NoError(t, jane.CoreV1().ConfigMaps(ns.Name).Delete(t.Context(), "mine", metav1.DeleteOptions{}))
	})

	t.Run("the namespace can be deleted", func(t *testing.T) {
		s := s.withT(t)
		s.delete(ns)
		s.waitDeleted(ns)
	})
}

func TestAdmissionProtectsOperatorPermissions(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	jane := s.newUser(s.name("jane"))
	s.grant(s.name("roles"), userSubject(jane.name),
		policyRule("create update patch", rbacv1.GroupName, "clusterroles"))
	labels := map[string]string{v1alpha1.AggregateLabel: "true"}
	create := func(short string, labels map[string]string) error {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.name(short), Labels: labels}}
		_, err := jane.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
		return err
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create("plain", nil)) })
	denial := "needs the verb patch on namespacetemplates"
	require.ErrorContains(t, create("more", labels), denial)
	patch := func(body string) error {
		_, err := jane.RbacV1().ClusterRoles().Patch(t.Context(), s.name("plain"), types.MergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	}
	require.ErrorContains(t, patch(`{"metadata": {"labels": {"`+v1alpha1.AggregateLabel+`": "true"}}}`), denial)
	require.NoError(t, patch(`{"metadata": {"labels": {"a": "b"}}}`))
	jane.grant("patch", v1alpha1.NamespaceTemplates.Resource)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create("more", labels)) })
}
