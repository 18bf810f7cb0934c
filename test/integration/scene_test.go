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

// scene is one test's corner of a world: its templates select the namespaces that it creates, and no others.
type scene struct {
	*world
	t  *testing.T
	id string
}

// sceneLabel carries, on a namespace, the id of the scene that it is of.
const sceneLabel = "scene"

// maxID leaves room in a name for what tells a scene's objects apart.
const maxID = 40

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func newScene(t *testing.T, w *world) *scene {
	t.Helper()
	id := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(id) > maxID {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(id)) // it never fails
		id = fmt.Sprintf("%s-%x", id[:maxID-9], sum.Sum32())
	}
	s := &scene{world: w, t: t, id: id}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log of %s:\n%s", s.id, w.operator.Log(s.id))
		}
	})
	return s
}

// name returns a name that no other scene uses.
func (s *scene) name(short string) string {
	return s.id + "-" + short
}

// template returns a template with the scene's selector and the objects of a YAML text.
func (s *scene) template(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: selector(sceneLabel, s.id), Templates: raw(s.t, objects),
		},
	}
	for _, apply := range change {
		apply(template)
	}
	return template
}

func selector(label, value string) v1alpha1.NamespaceSelector {
	return v1alpha1.NamespaceSelector{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
	}
}

func raw(t *testing.T, objects string) []runtime.RawExtension {
	t.Helper()
	var all []runtime.RawExtension
	for _, object := range parse(t, objects) {
		data, err := json.Marshal(object.Object)
		require.NoError(t, err)
		all = append(all, runtime.RawExtension{Raw: data})
	}
	return all
}

// parse decodes the documents of a YAML text.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
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

// declare creates a template and returns when the operator has taken it in.
func (s *scene) declare(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := s.template(short, objects, change...)
	require.NoError(s.t, s.client.Create(s.t.Context(), template))
	s.taken(template)
	return template
}

// edit changes a template and returns when the operator has taken it in.
func (s *scene) edit(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	s.editUnseen(template, change)
	s.taken(template)
}

// editUnseen changes a template.
func (s *scene) editUnseen(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	old := &v1alpha1.NamespaceTemplate{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), old))
	changed := old.DeepCopy()
	change(changed)
	require.NoError(s.t, s.client.Patch(s.t.Context(), changed, client.MergeFrom(old)))
	template.ObjectMeta, template.Spec = changed.ObjectMeta, changed.Spec
}

// editUnvetted changes a template in a way that is refused: as it may have been stored before there was anybody to
// refuse it. The operator is restarted for it.
func (s *scene) editUnvetted(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	require.NoError(s.t, s.operator.Kill())
	s.unguard()
	s.editUnseen(template, change)
	require.NoError(s.t, s.startOperator(s.t.Context()))
	s.taken(template)
}

// unguard lets templates be written while the operator is down. It comes back with the operator.
func (s *scene) unguard() {
	s.t.Helper()
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, webhooks))
	webhooks.Webhooks = nil
	require.NoError(s.t, s.client.Update(s.t.Context(), webhooks))
	s.eventually(func(c *assert.CollectT) { // until the API server goes by it
		assert.NoError(c, s.client.Create(s.t.Context(), s.template("probe", configMap("a", "v")), client.DryRunAll))
	})
}

// taken waits until the operator has taken in a template's generation.
func (s *scene) taken(template *v1alpha1.NamespaceTemplate) {
	s.t.Helper()
	s.status(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.GreaterOrEqual(c, status.ObservedGeneration, template.Generation)
	})
}

// status waits until a template's status is as expected.
func (s *scene) status(
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
func (s *scene) delete(object client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.client.Delete(s.t.Context(), object))
}

// namespace creates a namespace of the scene.
func (s *scene) namespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(short), Labels: map[string]string{sceneLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	require.NoError(s.t, s.create(ns))
	return ns
}

// create creates a namespace as the user whom its annotation names: nobody else would become its creator.
func (s *scene) create(ns *corev1.Namespace) error {
	creator, named := ns.Annotations[v1alpha1.CreatorAnnotation]
	if !named {
		return s.client.Create(s.t.Context(), ns)
	}
	config, err := s.cluster.UserConfig(creator, "system:masters")
	if err != nil {
		return err
	}
	user, err := client.New(config, client.Options{Scheme: s.client.Scheme(), Mapper: s.client.RESTMapper()})
	if err != nil {
		return err
	}
	return user.Create(s.t.Context(), ns)
}

// older returns a namespace that was there before admission was, so that nobody knows its creator. It is none of the
// scene's yet: see adopt.
func (s *scene) older(change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	number := int(s.olderTaken.Add(1)) - 1
	require.Less(s.t, number, olderNamespaces, "make more of them")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: olderName(number), Labels: map[string]string{sceneLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	return ns
}

// adopt gives an older namespace its labels.
func (s *scene) adopt(ns *corev1.Namespace) {
	s.t.Helper()
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": ns.Labels}})
	require.NoError(s.t, err)
	s.patchNamespace(ns, string(labels))
}

// populatedNamespace creates a namespace of the scene and returns when it is populated.
func (s *scene) populatedNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := s.namespace(short, change...)
	s.populated(ns)
	return ns
}

// patchNamespace changes labels and annotations by a merge patch.
func (s *scene) patchNamespace(ns *corev1.Namespace, patch string) {
	s.t.Helper()
	require.NoError(s.t,
		s.client.Patch(s.t.Context(), ns.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// populated waits until a namespace says that it is populated.
func (s *scene) populated(ns *corev1.Namespace) {
	s.t.Helper()
	s.condition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status, condition.Message)
	})
}

// condition waits until a namespace's Populated condition is as expected. It is the zero value when it isn't there.
func (s *scene) condition(ns *corev1.Namespace, expect func(*assert.CollectT, corev1.NamespaceCondition)) {
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

// stored reads an object's like from a namespace.
func (s *scene) stored(ns *corev1.Namespace, like client.Object) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(like.GetObjectKind().GroupVersionKind())
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: like.GetName()}, found)
	return found, err
}

// mustStored reads an object's like, which must be there.
func (s *scene) mustStored(ns *corev1.Namespace, like client.Object) *unstructured.Unstructured {
	s.t.Helper()
	found, err := s.stored(ns, like)
	require.NoError(s.t, err)
	return found
}

// holds waits until the objects of a YAML text are in a namespace.
func (s *scene) holds(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.holdsWithin(time.Minute, ns, parse(s.t, objects)...)
}

func (s *scene) holdsWithin(limit time.Duration, ns *corev1.Namespace, objects ...*unstructured.Unstructured) {
	s.t.Helper()
	s.eventuallyWithin(limit, func(c *assert.CollectT) {
		for _, object := range objects {
			found, err := s.stored(ns, object)
			if assert.NoError(c, err) {
				assert.Empty(c, missing(object.Object, found.Object), "in %s", object.GetName())
			}
		}
	})
}

// lacks waits until the objects of a YAML text are not in a namespace.
func (s *scene) lacks(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, object := range parse(s.t, objects) {
			found, err := s.stored(ns, object)
			assert.True(c, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%s is there: %v", object.GetName(),
				found.Object)
		}
	})
}

// missing returns the paths at which stored is not as declared. What is stored besides does not matter.
func missing(declared, stored any) []string {
	switch declared := declared.(type) {
	case map[string]any:
		there, ok := stored.(map[string]any)
		if !ok && len(declared) > 0 { // an empty one may be left out
			return []string{fmt.Sprintf(" is %v, not %v", stored, declared)}
		}
		var paths []string
		for key, value := range declared {
			for _, path := range missing(value, there[key]) {
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
			for _, path := range missing(value, there[i]) {
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

// writes counts what the operator has asked to write in a namespace, by verb and resource.
func (s *scene) writes(ns *corev1.Namespace) map[string]int {
	s.t.Helper()
	return audit.Count(s.writesSince(0, func(r request) bool { return r.ObjectRef.Namespace == ns.Name }))
}

func (s *scene) writesSince(point int, counted func(request) bool) []request {
	s.t.Helper()
	writes, err := s.audit.WritesSince(point, counted)
	require.NoError(s.t, err)
	return writes
}

// event waits for an Event in a namespace with a reason, whose note holds a text.
func (s *scene) event(ns *corev1.Namespace, kind, reason, text string) {
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

func (s *scene) eventually(check func(c *assert.CollectT)) {
	s.t.Helper()
	s.eventuallyWithin(time.Minute, check)
}

func (s *scene) eventuallyWithin(limit time.Duration, check func(c *assert.CollectT)) {
	s.t.Helper()
	require.EventuallyWithT(s.t, check, limit, 10*time.Millisecond)
}
