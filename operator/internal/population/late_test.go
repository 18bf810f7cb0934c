package population

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/sources"
	"nstpl.dev/nstpl/test/controlplane"
)

// A report that an earlier leader decided on changes nothing if the API server gets it after the namespace was changed.
func TestLateReportsAreRefused(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := client.New(cluster.RESTConfig(), client.Options{})
	require.NoError(t, err)
	merge := func(t *testing.T, object client.Object, patch string) {
		t.Helper()
		require.NoError(t, api.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	annotations := func(key, value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value)
	}
	for i, meanwhile := range []string{"", annotations("a", "b"), `{"metadata": {"labels": {"a": "b"}}}`} {
		ns := initializing(v1alpha1.TemplateInitializer)
		ns.Name, ns.UID, ns.ResourceVersion = fmt.Sprint("report-", i), "", ""
		require.NoError(t, api.Create(t.Context(), ns))
		seen := ns.DeepCopy()
		if meanwhile != "" {
			merge(t, ns, meanwhile)
		}
		late := Report{
			Status: corev1.ConditionTrue, Reason: "r", Depths: map[string]string{"a.tree.policy.nstpl.dev/depth": "0"},
		}.patch(seen, seen, stored(seen).Report, metav1.Now(), nil)
		err := api.Status().Patch(t.Context(), ns, late)
		require.Equal(t, meanwhile != "", patch.IsStale(err), "%d: %v", i, err)
	}
	// What users change in an open namespace does not keep a report from it, but that of another leader does.
	condition := func(kind, message string) string {
		return fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": "True", "reason": "r", "message": %q,
			"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, kind, message)
	}
	for i, test := range []struct {
		meanwhile string
		isStale   bool
	}{
		{annotations("a", "b"), false},
		{`{"metadata": {"labels": {"a": "b"}}}`, false},
		{condition("example.com/Own", "theirs"), false},
		{annotations(v1alpha1.ExistingAnnotation, "t=b"), true},
		{annotations(v1alpha1.NamespaceMetadataAnnotation, "{}"), true},
		{condition(string(v1alpha1.NamespacePopulated), "later"), true},
	} {
		ns := &corev1.Namespace{}
		ns.Name, ns.Annotations = fmt.Sprint("open-", i), map[string]string{v1alpha1.ExistingAnnotation: "t=a"}
		require.NoError(t, api.Create(t.Context(), ns))
		write := func(body string) {
			t.Helper()
			require.NoError(t,
				api.Status().Patch(t.Context(), ns, client.RawPatch(types.StrategicMergePatchType, []byte(body))))
		}
		write(condition(string(v1alpha1.NamespacePopulated), "before"))
		write(condition("example.com/Own", "before"))
		seen := ns.DeepCopy()
		write(test.meanwhile)
		late := Report{Status: corev1.ConditionFalse, Reason: "r", Message: "reported", Existing: "t=c"}
		err := api.Status().Patch(t.Context(), ns, late.patch(seen, seen, stored(seen).Report, metav1.Now(), nil))
		require.Equal(t, test.isStale, patch.IsStale(err), "%d: %v", i, err)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		require.Equal(t, !test.isStale, populate.PopulatedCondition(ns).Message == late.Message, "%d: %v", i, err)
		require.Equal(t, !test.isStale, ns.Annotations[v1alpha1.ExistingAnnotation] == late.Existing, "%d: %v", i, err)
	}
}

// Users who change the order of conditions do not keep the operator from removing an object from its record before it
// deletes the object.
func TestConditionsOfUsersKeepNoRecord(t *testing.T) {
	t.Parallel()
	api, err := client.New(controlplane.New(t).RESTConfig(), client.Options{})
	require.NoError(t, err)
	ns := &corev1.Namespace{}
	ns.Name, ns.Annotations = "open", map[string]string{v1alpha1.ExistingAnnotation: "t=a"}
	require.NoError(t, api.Create(t.Context(), ns))
	ns.Status.Conditions = []corev1.NamespaceCondition{
		{Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue},
		{Type: "theirs", Status: corev1.ConditionTrue},
	}
	require.NoError(t, api.Status().Update(t.Context(), ns))
	seen := ns.DeepCopy()
	slices.Reverse(ns.Status.Conditions)
	require.NoError(t, api.Status().Update(t.Context(), ns))
	r := &Namespaces{Client: api}
	written, err := r.writeExisting(t.Context(), seen, "")
	require.NoError(t, err)
	require.NotContains(t, written.Annotations, v1alpha1.ExistingAnnotation)
	_, err = r.writeExisting(t.Context(), seen, "t=b")
	require.True(t, patch.IsStale(err), "another leader's record: %v", err)
}

// What users change in an open namespace does not keep the operator from moving it to another policy space, unless it
// decides about the move.
func TestLateMovesAreRefused(t *testing.T) {
	t.Parallel()
	api, err := client.New(controlplane.New(t).RESTConfig(), client.Options{})
	require.NoError(t, err)
	const a, b, c = "a.tree.policy.nstpl.dev/depth", "b.tree.policy.nstpl.dev/depth", "c.tree.policy.nstpl.dev/depth"
	for i, test := range []struct {
		field, key, value string
		isStale           bool
	}{
		{"labels", "own", `"x"`, false},
		{"annotations", "own", `"x"`, false},
		{"labels", v1alpha1.PolicySpaceLabel, `"c"`, true},
		{"labels", v1alpha1.PolicySpaceLabel, "null", true},
		{"labels", a, "null", true},
		{"annotations", v1alpha1.AdoptAnnotation, "null", true},
		{"annotations", v1alpha1.NamespaceMetadataAnnotation, `"{}"`, true},
	} {
		ns := &corev1.Namespace{}
		ns.Name, ns.Labels = fmt.Sprint("moves-", i), map[string]string{v1alpha1.PolicySpaceLabel: "b", a: "1", c: "3"}
		ns.Annotations = map[string]string{v1alpha1.AdoptAnnotation: "true"}
		require.NoError(t, api.Create(t.Context(), ns))
		seen := ns.DeepCopy()
		body := fmt.Sprintf(`{"metadata": {%q: {%q: %s}}}`, test.field, test.key, test.value)
		require.NoError(t, api.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(body))))
		move := Report{Depths: map[string]string{b: "1", c: "2"}, InTree: true}
		err := api.Status().Patch(t.Context(), ns, move.patch(seen, seen, stored(seen).Report, metav1.Now(), nil))
		require.Equal(t, test.isStale, patch.IsStale(err), "%s: %v", body, err)
		if !test.isStale {
			require.NoError(t, err)
			require.Equal(t, move.Depths, stored(ns).Depths)
		}
		// The pass may have read the namespace before what it writes to.
		later := ns.DeepCopy()
		ns.Labels["later"] = "x"
		require.NoError(t, api.Update(t.Context(), ns))
		err = api.Status().Patch(t.Context(), ns,
			move.patch(later, seen, Report{Depths: stored(later).Depths}, metav1.Now(), nil))
		decides := test.key == v1alpha1.PolicySpaceLabel || test.key == v1alpha1.AdoptAnnotation
		require.Equal(t, decides, patch.IsStale(err), "%s: %v", body, err)
	}
}

// A late move of an earlier leader adds no policy space to those to which the next one has moved the namespace, also if
// all of its changes would fit: both knew the namespace's own space, and another one above it.
func TestLateMovesAddNoSpace(t *testing.T) {
	t.Parallel()
	api, err := client.New(controlplane.New(t).RESTConfig(), client.Options{})
	require.NoError(t, err)
	own, b, c := "own"+v1alpha1.DepthLabelSuffix, "b"+v1alpha1.DepthLabelSuffix, "c"+v1alpha1.DepthLabelSuffix
	record := populate.MetadataRecord{
		{Field: "labels", Key: "tier"}: populate.NewRecordedValue("t", "uid", "gold"),
	}.String()
	for name, annotations := range map[string]map[string]string{
		"none": nil, "own": {"a": "b"}, "record": {v1alpha1.NamespaceMetadataAnnotation: record},
	} {
		ns := &corev1.Namespace{}
		ns.Name, ns.Annotations = name, annotations
		ns.Labels = map[string]string{v1alpha1.PolicySpaceLabel: "own", own: "1", "tier": "gold"}
		require.NoError(t, api.Create(t.Context(), ns))
		move := func(seen *corev1.Namespace, depths map[string]string) error {
			report := Report{Depths: depths}
			return api.Status().Patch(t.Context(), ns, report.patch(seen, seen, stored(seen).Report, metav1.Now(), nil))
		}
		seen, later := ns.DeepCopy(), map[string]string{own: "1", c: "2"}
		require.NoError(t, move(seen, later))
		require.True(t, patch.IsStale(move(seen, map[string]string{own: "1", b: "2"})), name)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		require.Equal(t, later, stored(ns).Depths)
		require.Equal(t, annotations["a"], ns.Annotations["a"])
		require.Equal(t, name == "record", populate.MayPruneMetadata(ns, "t", "uid"))
		require.NoError(t, move(ns, map[string]string{own: "1", b: "2"}), "a later move")
	}
}

// newClusterWithTemplates starts a control plane that has the kinds of nstpl, and returns a client for them.
func newClusterWithTemplates(t *testing.T) (*controlplane.Cluster, client.Client) {
	t.Helper()
	cluster := controlplane.New(t)
	definitions, err := crd.All()
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	api, err := client.New(cluster.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, definition := range definitions {
		require.NoError(t, api.Create(t.Context(), definition))
	}
	return cluster, api
}

// createTemplate creates the template t, once the kind is served.
func createTemplate(t *testing.T, api client.Client) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}},
			Templates:  []runtime.RawExtension{{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap"}`)}},
		},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, api.Create(t.Context(), template))
	}, 30*time.Second, 50*time.Millisecond)
	return template
}

// newHistory starts a control plane, and returns a client for it, and the history of a template that is stored in it.
func newHistory(t *testing.T) (client.Client, *History, *v1alpha1.NamespaceTemplate) {
	t.Helper()
	cluster, api := newClusterWithTemplates(t)
	typed, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	require.NoError(t, api.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace},
	}))
	revisions := typed.AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace)
	return api, &History{Live: api, Revisions: revisions}, createTemplate(t, api)
}

// lateCache is a client whose reads return one template, and whose writes reach the API server.
type lateCache struct {
	client.Client
	template *v1alpha1.NamespaceTemplate
}

func (c *lateCache) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.template.DeepCopyInto(object.(*v1alpha1.NamespaceTemplate))
	return nil
}

// TestAStatusThatTheCacheDoesNotShowYetIsReplaced writes that a namespace failed while the cache goes on to show that
// it is populated, which is true again afterwards.
func TestAStatusThatTheCacheDoesNotShowYetIsReplaced(t *testing.T) {
	t.Parallel()
	_, api := newClusterWithTemplates(t)
	late := &lateCache{api, createTemplate(t, api)}
	late.template.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "it compiles",
		LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, api.Status().Update(t.Context(), late.template))
	results := NewResults(func(string, bool) {})
	results.Start(nil)
	templates := &Statuses{Client: late, Stored: match.NewIndex(), Results: results, Sources: &sources.Store{}}
	write := func(state State) *v1alpha1.NamespaceTemplate {
		results.Record("a", "1", map[string]TemplateResult{"t": {Generation: 1, State: state}}, state == Populated)
		template, err := templates.read(t.Context(), "t")
		require.NoError(t, err)
		require.NoError(t, templates.keepStatus(t.Context(), template))
		stored := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "t"}, stored))
		return stored
	}
	late.template = write(Populated)
	require.EqualValues(t, 1, write(Failed).Status.Namespaces.Failed)
	require.Equal(t, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, write(Populated).Status.Namespaces)
}

// Beyond the limit of the history, revisions that the template owns and that no namespace has are deleted.
func TestRevisionsInUseAndOfOthersAreNotPruned(t *testing.T) {
	t.Parallel()
	_, history, template := newHistory(t)
	for number := range int64(5) {
		revision := controllerRevision(template, number+1, []byte("{}"))
		if revision.Name == "t-2" {
			revision.OwnerReferences = nil
		}
		_, err := history.Revisions.Create(t.Context(), revision, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	template.Spec.RevisionHistoryLimit = new(int32(1))
	template.Status.Revisions = []v1alpha1.TemplateRevision{{Name: "t-5", Revision: 5}, {Name: "t-1", Revision: 1}}
	require.NoError(t, history.pruneRevisions(t.Context(), template))
	stored, err := history.Revisions.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, revision := range stored.Items {
		names = append(names, revision.Name)
	}
	require.ElementsMatch(t, []string{"t-1", "t-2", "t-4", "t-5"}, names)
}

// A revision that was stored with the status is not replaced by an operator whose copy of the template is older.
func TestLateCopiesReplaceNoRevision(t *testing.T) {
	t.Parallel()
	api, templates, template := newHistory(t)
	number, err := templates.storeRevision(t.Context(), template, 1, []byte(`{"spec": "first"}`))
	require.NoError(t, err)
	require.EqualValues(t, 1, number)
	late := template.DeepCopy()
	template.Status.Revisions = []v1alpha1.TemplateRevision{{
		Name: "t-1", Revision: 1, State: v1alpha1.RolloutComplete, StartTime: metav1.Now(),
	}}
	require.NoError(t, api.Status().Update(t.Context(), template))

	second := []byte(`{"spec": "second"}`)
	_, err = templates.storeRevision(t.Context(), late, 1, second)
	require.ErrorContains(t, err, "the operator's copy of the template is out of date")
	stored, err := templates.Revisions.Get(t.Context(), "t-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.JSONEq(t, `{"spec": "first"}`, string(stored.Data.Raw))

	_, err = templates.storeRevision(t.Context(), template, 1, second)
	require.NoError(t, err, "its status could not be stored, so no namespace has the revision")
	stored, err = templates.Revisions.Get(t.Context(), "t-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.JSONEq(t, `{"spec": "second"}`, string(stored.Data.Raw))
}

// The same holds for the status of an exemption, which says in turn why it has no effect.
func TestAStatusOfAnExemptionThatTheCacheDoesNotShowYetIsReplaced(t *testing.T) {
	t.Parallel()
	_, api := newClusterWithTemplates(t)
	exemption := &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: "t", Reason: "a test"},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, api.Create(t.Context(), exemption))
	}, 30*time.Second, 50*time.Millisecond)
	r := &Namespaces{Client: api}
	plan := populate.Plan{Declared: populate.Declared{Namespace: &corev1.Namespace{}}}
	write := func(reason string) *v1alpha1.TemplateExemption {
		found := exemptions{all: []*v1alpha1.TemplateExemption{exemption}, now: metav1.Now()}
		require.NoError(t, r.reportExemptions(t.Context(), found, plan, reason))
		stored := &v1alpha1.TemplateExemption{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(exemption), stored))
		require.Equal(t, reason, apimeta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionReady).Message)
		return stored
	}
	exemption = write("one") // the cache shows no later one
	write("two")
	write("one")
}
