package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
)

// testScope is one test's corner of a world: its templates select the namespaces that it creates, and no others.
type testScope struct {
	*testCluster
	t  *testing.T
	id string
}

// testLabel carries, on a namespace, the id of the scene that it is of.
const testLabel = "test"

// maxIDLength leaves room in a name for what tells a scene's objects apart.
const maxIDLength = 40

var invalidNameCharacters = regexp.MustCompile(`[^a-z0-9]+`)

func newScope(t *testing.T, cluster *testCluster) *testScope {
	t.Helper()
	id := strings.Trim(invalidNameCharacters.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(id) > maxIDLength {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(id)) // it never fails
		id = fmt.Sprintf("%s-%x", id[:maxIDLength-9], sum.Sum32())
	}
	s := &testScope{testCluster: cluster, t: t, id: id}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log of %s:\n%s", s.id, cluster.operator.Log(s.id))
		}
	})
	return s
}

// name returns a name that no other scene uses.
func (s *testScope) name(short string) string {
	return s.id + "-" + short
}

// newTemplate returns a template with the scene's selector and the objects of a YAML text.
func (s *testScope) newTemplate(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: selectLabel(testLabel, s.id), Templates: rawObjects(s.t, objects),
		},
	}
	for _, apply := range change {
		apply(template)
	}
	return template
}

func selectLabel(label, value string) v1alpha1.NamespaceSelector {
	return v1alpha1.NamespaceSelector{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
	}
}

func rawObjects(t *testing.T, objects string) []runtime.RawExtension {
	t.Helper()
	var all []runtime.RawExtension
	for _, object := range parseYAML(t, objects) {
		data, err := json.Marshal(object.Object)
		require.NoError(t, err)
		all = append(all, runtime.RawExtension{Raw: data})
	}
	return all
}

// parseYAML decodes the documents of a YAML text.
func parseYAML(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var document runtime.RawExtension
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, utiljson.Unmarshal(document.Raw, &object.Object))
		objects = append(objects, object)
	}
}

// createTemplate creates a template and returns when the operator has taken it in.
func (s *testScope) createTemplate(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := s.newTemplate(short, objects, change...)
	require.NoError(s.t, s.client.Create(s.t.Context(), template))
	s.waitTemplateObserved(template)
	return template
}

// updateTemplate changes a template and returns when the operator has taken it in.
func (s *testScope) updateTemplate(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	s.patchTemplate(template, change)
	s.waitTemplateObserved(template)
}

// patchTemplate changes a template.
func (s *testScope) patchTemplate(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	old := &v1alpha1.NamespaceTemplate{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), old))
	changed := old.DeepCopy()
	change(changed)
	require.NoError(s.t, s.client.Patch(s.t.Context(), changed, client.MergeFrom(old)))
	template.ObjectMeta, template.Spec = changed.ObjectMeta, changed.Spec
}

// updateTemplateUnvetted changes a template in a way that is refused: as it may have been stored before there was anybody to
// refuse it. The operator is restarted for it.
func (s *testScope) updateTemplateUnvetted(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	require.NoError(s.t, s.operator.Kill())
	s.disableVetting()
	s.patchTemplate(template, change)
	require.NoError(s.t, s.startOperator(s.t.Context()))
	s.waitTemplateObserved(template)
}

// disableVetting lets templates be written while the operator is down. It comes back with the operator.
func (s *testScope) disableVetting() {
	s.t.Helper()
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, webhooks))
	webhooks.Webhooks = nil
	require.NoError(s.t, s.client.Update(s.t.Context(), webhooks))
	s.eventually(func(c *assert.CollectT) { // until the API server goes by it
		assert.NoError(c, s.client.Create(s.t.Context(), s.newTemplate("probe", configMap("a", "v")), client.DryRunAll))
	})
}

// waitTemplateObserved waits until the operator has taken in a template's generation.
func (s *testScope) waitTemplateObserved(template *v1alpha1.NamespaceTemplate) {
	s.t.Helper()
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.GreaterOrEqual(c, status.ObservedGeneration, template.Generation)
	})
}

// waitTemplateStatus waits until a template's status is as expected.
func (s *testScope) waitTemplateStatus(
	template *v1alpha1.NamespaceTemplate, expect func(*assert.CollectT, v1alpha1.NamespaceTemplateStatus),
) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &v1alpha1.NamespaceTemplate{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), found)) {
			expect(c, found.Status)
		}
	})
}

// delete deletes an object.
func (s *testScope) delete(object client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.client.Delete(s.t.Context(), object))
}

// createNamespace creates a namespace of the scene.
func (s *testScope) createNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(short), Labels: map[string]string{testLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	require.NoError(s.t, s.createAsCreator(ns))
	return ns
}

// createAsCreator creates a namespace as the user whom its annotation names: nobody else would become its creator.
func (s *testScope) createAsCreator(ns *corev1.Namespace) error {
	creator, named := ns.Annotations[v1alpha1.CreatorAnnotation]
	if !named {
		return s.client.Create(s.t.Context(), ns)
	}
	config, err := s.controlPlane.UserConfig(creator, "system:masters")
	if err != nil {
		return err
	}
	user, err := client.New(config, client.Options{Scheme: s.client.Scheme(), Mapper: s.client.RESTMapper()})
	if err != nil {
		return err
	}
	return user.Create(s.t.Context(), ns)
}

// preexistingNamespace returns a namespace that was there before admission was, so that nobody knows its creator. It is none of the
// scene's yet: see adopt.
func (s *testScope) preexistingNamespace(change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	number := int(s.preexistingUsed.Add(1)) - 1
	require.Less(s.t, number, preexistingNamespaces, "make more of them")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: preexistingName(number), Labels: map[string]string{testLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	return ns
}

// applyLabels gives an older namespace its labels.
func (s *testScope) applyLabels(ns *corev1.Namespace) {
	s.t.Helper()
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": ns.Labels}})
	require.NoError(s.t, err)
	s.patchNamespace(ns, string(labels))
}

// createPopulatedNamespace creates a namespace of the scene and returns when it is populated.
func (s *testScope) createPopulatedNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := s.createNamespace(short, change...)
	s.waitPopulated(ns)
	return ns
}

// patchNamespace changes labels and annotations by a merge patch.
func (s *testScope) patchNamespace(ns *corev1.Namespace, patch string) {
	s.t.Helper()
	require.NoError(s.t,
		s.client.Patch(s.t.Context(), ns.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// waitPopulated waits until a namespace says that it is populated.
func (s *testScope) waitPopulated(ns *corev1.Namespace) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status, condition.Message)
	})
}

// waitCondition waits until a namespace's Populated condition is as expected. It is the zero value when it isn't there.
func (s *testScope) waitCondition(ns *corev1.Namespace, expect func(*assert.CollectT, corev1.NamespaceCondition)) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			expect(c, populatedCondition(found))
		}
	})
}

func populatedCondition(ns *corev1.Namespace) corev1.NamespaceCondition {
	for _, condition := range ns.Status.Conditions {
		if condition.Type == v1alpha1.NamespacePopulated {
			return condition
		}
	}
	return corev1.NamespaceCondition{}
}

// get reads an object's like from a namespace.
func (s *testScope) get(ns *corev1.Namespace, like client.Object) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(like.GetObjectKind().GroupVersionKind())
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: like.GetName()}, found)
	return found, err
}

// mustGet reads an object's like, which must be there.
func (s *testScope) mustGet(ns *corev1.Namespace, like client.Object) *unstructured.Unstructured {
	s.t.Helper()
	found, err := s.get(ns, like)
	require.NoError(s.t, err)
	return found
}

// waitPresent waits until the objects of a YAML text are in a namespace.
func (s *testScope) waitPresent(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.waitPresentWithin(time.Minute, ns, parseYAML(s.t, objects)...)
}

func (s *testScope) waitPresentWithin(limit time.Duration, ns *corev1.Namespace, objects ...*unstructured.Unstructured) {
	s.t.Helper()
	s.eventuallyWithin(limit, func(c *assert.CollectT) {
		for _, object := range objects {
			found, err := s.get(ns, object)
			if assert.NoError(c, err) {
				assert.Empty(c, differences(object.Object, found.Object), "in %s", object.GetName())
			}
		}
	})
}

// waitAbsent waits until the objects of a YAML text are not in a namespace.
func (s *testScope) waitAbsent(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, object := range parseYAML(s.t, objects) {
			found, err := s.get(ns, object)
			assert.True(c, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%s is there: %v", object.GetName(),
				found.Object)
		}
	})
}

// differences returns the paths at which stored is not as declared. What is stored besides does not matter.
func differences(declared, stored any) []string {
	switch declared := declared.(type) {
	case map[string]any:
		there, ok := stored.(map[string]any)
		if !ok && len(declared) > 0 { // an empty one may be left out
			return []string{fmt.Sprintf(" is %v, not %v", stored, declared)}
		}
		var paths []string
		for key, value := range declared {
			for _, path := range differences(value, there[key]) {
				paths = append(paths, "."+key+path)
			}
		}
		return paths
	case []any:
		there, ok := stored.([]any)
		if len(there) != len(declared) || !ok && len(declared) > 0 {
			return []string{fmt.Sprintf(" is %v, not %v", stored, declared)}
		}
		var paths []string
		for i, value := range declared {
			for _, path := range differences(value, there[i]) {
				paths = append(paths, fmt.Sprintf("[%d]%s", i, path))
			}
		}
		return paths
	}
	if assert.ObjectsAreEqual(declared, stored) {
		return nil
	}
	return []string{fmt.Sprintf(" is %#v, not %#v", stored, declared)}
}

// countWrites counts what the operator has asked to write in a namespace, by verb and resource.
func (s *testScope) countWrites(ns *corev1.Namespace) map[string]int {
	s.t.Helper()
	return audit.Count(s.writesSince(0, func(r request) bool { return r.ObjectRef.Namespace == ns.Name }))
}

func (s *testScope) writesSince(point int, counted func(request) bool) []request {
	s.t.Helper()
	writes, err := s.audit.WritesSince(point, counted)
	require.NoError(s.t, err)
	return writes
}

// waitEvent waits for an Event in a namespace with a reason, whose note holds a text.
func (s *testScope) waitEvent(ns *corev1.Namespace, kind, reason, text string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		events := &eventsv1.EventList{}
		if !assert.NoError(c, s.client.List(s.t.Context(), events, client.InNamespace(ns.Name))) {
			return
		}
		var seen bytes.Buffer
		for _, event := range events.Items {
			fmt.Fprintf(&seen, "%s %s: %s\n", event.Type, event.Reason, event.Note)
			if event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) &&
				event.Regarding.Kind == "Namespace" && event.Regarding.Name == ns.Name {
				return
			}
		}
		assert.Fail(c, "no such event", "%s %s: …%s…; there are:\n%s", kind, reason, text, &seen)
	})
}

func (s *testScope) eventually(check func(c *assert.CollectT)) {
	s.t.Helper()
	s.eventuallyWithin(time.Minute, check)
}

func (s *testScope) eventuallyWithin(limit time.Duration, check func(c *assert.CollectT)) {
	s.t.Helper()
	require.EventuallyWithT(s.t, check, limit, 10*time.Millisecond)
}
