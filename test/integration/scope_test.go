package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/escalation"
)

// scope separates a test from the others on its cluster: the templates that it creates select only the namespaces that
// it creates, and all their names begin with its id.
type scope struct {
	*testCluster
	t  *testing.T
	id string
}

// testScope has the methods of all fixtures, for tests. A function that needs only one of them takes that.
type testScope struct {
	*scope
	userFixture
	writeFixture
	templateFixture
	spaceFixture
	attributeFixture
	constraintFixture
}

// withFixtures returns the fixtures of a scope.
func (s *scope) withFixtures() *testScope {
	users := userFixture{s}
	templates := templateFixture{users}
	return &testScope{
		scope: s, userFixture: users, writeFixture: writeFixture{s}, templateFixture: templates,
		spaceFixture: spaceFixture{templates}, attributeFixture: attributeFixture{users},
		constraintFixture: constraintFixture{users},
	}
}

// testLabel is the label of a namespace whose value is the id of its scope.
const testLabel = escalation.SelectLabel

// maxIDLength is short enough for names to have a suffix.
const maxIDLength = 40

var invalidNameCharacters = regexp.MustCompile(`[^a-z0-9]+`)

// newScope returns the scope of a test. When the test ends, its cluster-scoped objects are deleted from the shared
// cluster. If the test fails, the operator's log about the scope's objects is printed.
func newScope(t *testing.T, cluster *testCluster) *testScope {
	t.Helper()
	id := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	id = strings.Trim(invalidNameCharacters.ReplaceAllString(id, "-"), "-")
	if len(id) > maxIDLength {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(id)) // it never fails
		id = fmt.Sprintf("%s-%x", id[:maxIDLength-9], sum.Sum32())
	}
	s := &scope{testCluster: cluster, t: t, id: id}
	t.Cleanup(func() {
		if cluster == sharedCluster {
			deleteClusterObjects(s)
		}
		if t.Failed() && cluster.operator != nil {
			t.Logf("the operator's log of %s:\n%s", s.id, cluster.operator.Log(s.id))
		}
	})
	return s.withFixtures()
}

// withT returns the scope for a subtest, which shares its templates and namespaces.
func (s *scope) withT(t *testing.T) *testScope {
	t.Helper()
	return (&scope{testCluster: s.testCluster, t: t, id: s.id}).withFixtures()
}

// name returns a name that no other scope uses.
func (s *scope) name(short string) string {
	return s.id + "-" + short
}

// pollInterval is the time between two checks of a condition. With 10 ms, tests that waited took as much CPU time as
// those that did something.
const pollInterval = 50 * time.Millisecond

// eventually repeats a check until it passes, and fails the test after a minute.
func (s *scope) eventually(check func(c *assert.CollectT)) {
	s.t.Helper()
	s.eventuallyWithin(time.Minute, check)
}

// eventuallyWithin repeats a check until it passes, and fails the test after a limit. It returns when no check runs any
// more: one that used the test after its end would end the process, and with it all other tests.
func (s *scope) eventuallyWithin(limit time.Duration, check func(c *assert.CollectT)) {
	s.t.Helper()
	var mu sync.Mutex
	hasEnded := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		hasEnded = true
	}()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		mu.Lock()
		defer mu.Unlock()
		if !hasEnded {
			check(c)
		}
	}, limit, pollInterval)
}

// concurrently calls a function n times at the same time, and returns when all calls have returned.
func concurrently(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// newNamespace returns a namespace of the scope, which is not created yet.
func (s *scope) newNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(short), Labels: map[string]string{testLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	return ns
}

func withLabel(key, value string) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) { ns.Labels[key] = value }
}

// withCreator has createNamespace create a namespace as another user.
func withCreator(name string) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.CreatorAnnotation: name}
	}
}

// createNamespace creates a namespace of the scope.
func (s *scope) createNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := s.newNamespace(short, change...)
	require.NoError(s.t, s.createAsCreator(ns))
	return ns
}

// createAsCreator creates a namespace as the user that its creator annotation names, because the API server writes the
// name of the requester there.
func (s *scope) createAsCreator(ns *corev1.Namespace) error {
	creator, named := ns.Annotations[v1alpha1.CreatorAnnotation]
	if !named {
		return s.client.Create(s.t.Context(), ns)
	}
	user, err := s.newUserClient(creator, "system:masters")
	if err != nil {
		return err
	}
	return user.Create(s.t.Context(), ns)
}

// preexistingNamespace returns a namespace that was created before nstpl was installed, so that its creator is unknown.
// The namespace belongs to the scope only after applyLabels.
func (s *scope) preexistingNamespace(change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	number := int(s.preexistingUsed.Add(1)) - 1
	require.Less(s.t, number, preexistingNamespaces, "increase preexistingNamespaces")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: preexistingName(number), Labels: map[string]string{testLabel: s.id},
	}}
	for _, apply := range change {
		apply(ns)
	}
	return ns
}

// applyLabels writes the labels of a preexisting namespace.
func (s *scope) applyLabels(ns *corev1.Namespace) {
	s.t.Helper()
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": ns.Labels}})
	require.NoError(s.t, err)
	s.patchNamespace(ns, string(labels))
}

// patchNamespace changes labels and annotations by a merge patch.
func (s *scope) patchNamespace(ns *corev1.Namespace, patch string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Patch(s.t.Context(), ns.DeepCopy(), mergePatch(patch)))
}

// waitEvent waits for an Event about a namespace with a type, a reason, and a note that contains a text.
func (s *scope) waitEvent(ns *corev1.Namespace, eventType, reason, text string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		events := &eventsv1.EventList{}
		if !assert.NoError(c, s.client.List(s.t.Context(), events, client.InNamespace(ns.Name))) {
			return
		}
		var seen bytes.Buffer
		for _, event := range events.Items {
			fmt.Fprintf(&seen, "%s %s: %s\n", event.Type, event.Reason, event.Note)
			if event.Type == eventType && event.Reason == reason && strings.Contains(event.Note, text) &&
				event.Regarding.Kind == "Namespace" && event.Regarding.Name == ns.Name {
				return
			}
		}
		assert.Fail(c, "no such event", "%s %s: …%s…; the Events are:\n%s", eventType, reason, text, &seen)
	})
}

// get reads the object from a namespace that has the kind and name of another object.
func (s *scope) get(ns *corev1.Namespace, like client.Object) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(like.GetObjectKind().GroupVersionKind())
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: like.GetName()}, found)
	return found, err
}

// mustGet is like get, and fails the test if the object does not exist.
func (s *scope) mustGet(ns *corev1.Namespace, like client.Object) *unstructured.Unstructured {
	s.t.Helper()
	found, err := s.get(ns, like)
	require.NoError(s.t, err)
	return found
}

// createObjects creates the objects of a YAML text in a namespace, as an administrator.
func (s *scope) createObjects(namespace, objects string) {
	s.t.Helper()
	for _, object := range parseYAML(s.t, objects) {
		object.SetNamespace(namespace)
		require.NoError(s.t, s.client.Create(s.t.Context(), object))
	}
}

func (s *scope) delete(object client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.client.Delete(s.t.Context(), object))
}

// waitPresent waits until the objects of a YAML text exist in a namespace, with all the fields of the text.
func (s *scope) waitPresent(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, object := range parseYAML(s.t, objects) {
			found, err := s.get(ns, object)
			if assert.NoError(c, err) {
				assert.Empty(c, differences(object.Object, found.Object), "in %s", object.GetName())
			}
		}
	})
}

// waitAbsent waits until the objects of a YAML text do not exist in a namespace. Only their kinds and names matter.
func (s *scope) waitAbsent(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, object := range parseYAML(s.t, objects) {
			found, err := s.get(ns, object)
			assert.True(c, apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err), "%s exists: %v", object.GetName(),
				found.Object)
		}
	})
}

// waitDeleted waits until an object does not exist.
func (s *scope) waitDeleted(object client.Object) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
		assert.True(c, apierrors.IsNotFound(err), "it exists: %v", err)
	})
}

// testFinalizer is a finalizer that no controller removes, so that the deletion of its object does not end.
const testFinalizer = "example.com/keep"

// addFinalizer adds testFinalizer to the object in a namespace that has the kind and name of another object, and
// returns a function that removes it.
func (s *scope) addFinalizer(ns *corev1.Namespace, like client.Object) (remove func()) {
	s.t.Helper()
	patch := func(finalizers string) {
		s.t.Helper()
		require.NoError(s.t, s.client.Patch(s.t.Context(), s.mustGet(ns, like),
			mergePatch(`{"metadata": {"finalizers": `+finalizers+`}}`)))
	}
	patch(`["` + testFinalizer + `"]`)
	return func() { s.t.Helper(); patch("null") }
}

// mergePatch returns a JSON merge patch.
func mergePatch(body string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(body))
}

// patchLabel sets a label of a namespace as an administrator, or removes it if the value is empty.
func (s *scope) patchLabel(ns *corev1.Namespace, key, value string) {
	s.t.Helper()
	var label any
	if value != "" {
		label = value
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: label}}})
	require.NoError(s.t, err)
	s.patchNamespace(ns, string(body))
}

// addFinalizerToNamespace keeps a namespace terminating until remove is called.
func (s *scope) addFinalizerToNamespace(short string) (remove func()) {
	s.t.Helper()
	patch := func(body string) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}}
		require.NoError(s.t, s.client.Patch(s.t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	patch(`{"metadata": {"finalizers": ["nstpl.dev/test"]}}`)
	return func() { patch(`{"metadata": {"finalizers": null}}`) }
}

// patchLike changes the object in a namespace that has the kind and name of a YAML object.
func (s *scope) patchLike(as client.Client, ns *corev1.Namespace, like, patch string) error {
	object := parseYAML(s.t, like)[0]
	object.SetNamespace(ns.Name)
	return as.Patch(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(),
		"metadata": map[string]any{"name": object.GetName(), "namespace": ns.Name},
	}}, mergePatch(patch))
}

// deleteIn deletes the objects of a YAML text in a namespace.
func (s *scope) deleteIn(ns *corev1.Namespace, objects string) {
	s.t.Helper()
	for _, object := range parseYAML(s.t, objects) {
		s.delete(s.mustGet(ns, object))
	}
}
