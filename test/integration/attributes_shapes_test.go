package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/test/marks"
)

// The matchConditions of the webhook find the same protected attributes as the engine, in objects of any shape. Only
// for lists of templates do they match more.
func TestAPIServerAndEngineReadTheSameAttributes(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	const rounds = 120
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	s.applyYAML(shapeDefinition)
	waitEstablished(t, cluster, "shapes.example.com")
	var clusterRules []v1alpha1.ClusterProtectedAttribute
	for kind, names := range map[v1alpha1.AttributeKind][]string{
		v1alpha1.LabelAttribute: {"a", "b.example.com/c"}, v1alpha1.AnnotationAttribute: {"a", "B.example.com/d"},
	} {
		for i, name := range names {
			rule := s.attributeRule(kind, "", v1alpha1.ClusterRoleKind, "nobody-holds-it")
			rule.AttributeName, rule.GuardDeletion = name, i == 0
			object := s.protectAttribute("", fmt.Sprint(strings.ToLower(string(kind)), i), rule)
			clusterRules = append(clusterRules, *object.(*v1alpha1.ClusterProtectedAttribute))
		}
	}
	rules := attributes.NewRules(clusterRules, nil)
	nobody := func(v1alpha1.RoleReference) bool { return false }
	// The keeper of the objects is exempt from the rules.
	keeper := schedulerClient(s)
	random := rand.New(rand.NewPCG(1, 2))
	calls := func() int {
		calls, _, err := cluster.operator.Metric(t.Context(), "nstpl_admission_decisions_total", `plugin="attributes"`)
		require.NoError(t, err)
		return int(calls)
	}
	refusals, more := 0, 0
	for round := range rounds {
		old, updated := randomShape(random, fmt.Sprint("s", round)), randomShape(random, fmt.Sprint("s", round))
		if random.IntN(2) == 0 { // a small change
			updated = old.DeepCopy()
			changeRandomly(random, updated.Object)
		}
		for what, try := range []func() (attributes.Change, error){
			func() (attributes.Change, error) {
				return attributes.Change{New: toJSON(t, old)},
					s.client.Create(t.Context(), old.DeepCopy(), client.DryRunAll)
			},
			func() (attributes.Change, error) {
				require.NoError(t, keeper.Create(t.Context(), old))
				updated.SetResourceVersion(old.GetResourceVersion())
				change := attributes.Change{Old: toJSON(t, old), New: toJSON(t, updated)}
				return change, s.client.Update(t.Context(), updated.DeepCopy(), client.DryRunAll)
			},
		} {
			before := calls()
			change, err := try()
			asked := calls() - before
			text, _ := json.Marshal(change)
			if violations := rules.Judge(change, nobody); len(violations) > 0 {
				refusals++
				require.True(t, apierrors.IsForbidden(err), "%d: %v: %s", what, err, text)
				require.Equal(t, 1, asked)
				continue
			}
			require.NoError(t, err, "%d: %s", what, text)
			if asked > 0 {
				more++
				require.True(t, strings.Contains(string(text), "olume"), "%d: the webhook was called although no rule applies: %s", what, text)
			}
		}
		change := attributes.Change{Old: toJSON(t, old)}
		err := s.client.Delete(t.Context(), old.DeepCopy(), client.DryRunAll)
		require.Equal(t, len(rules.Judge(change, nobody)) > 0, apierrors.IsForbidden(err), "delete: %v: %v", err,
			change)
	}
	require.Greater(t, refusals, rounds/2)
	require.Less(t, more, rounds/4)
}

// schedulerClient returns the client of a user who is exempt from rules about attributes.
func schedulerClient(s *testScope) client.Client {
	s.t.Helper()
	config := s.controlPlane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:kube-scheduler", Groups: []string{"system:masters"}}
	return s.newReadyClient(config)
}

const shapeDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shapes.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: shapes, singular: shape, kind: Shape}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// toJSON returns an object as it is decoded from JSON.
func toJSON(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	data, err := object.MarshalJSON()
	require.NoError(t, err)
	found := &unstructured.Unstructured{}
	require.NoError(t, found.UnmarshalJSON(data))
	return found.Object
}

// randomShape returns an object with random values in the fields that templates of workloads have.
func randomShape(random *rand.Rand, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shape"})
	for _, field := range []string{"spec", "template", "data"} {
		if random.IntN(3) > 0 {
			object.Object[field] = randomValue(random, 6)
		}
	}
	object.SetName(name)
	for _, set := range []func(map[string]string){object.SetLabels, object.SetAnnotations} {
		values := map[string]string{}
		for _, key := range []string{"a", "b.example.com/c", "B.example.com/d", "e"} {
			if random.IntN(6) == 0 {
				values[key] = fmt.Sprint(random.IntN(2))
			}
		}
		set(values)
	}
	if object.GetLabels()["B.example.com/d"] != "" { // upper-case prefixes are not valid in label keys
		object.SetLabels(nil)
	}
	return object
}

var shapeFields = []string{
	"metadata", "template", "spec", "jobTemplate", "volumes", "volumeClaimTemplates", "ephemeral",
	"volumeClaimTemplate", "labels", "annotations", "a", "b.example.com/c",
}

// randomValue returns a value that often has the structure of a workload's template.
func randomValue(random *rand.Rand, depth int) any {
	switch choice := random.IntN(24); {
	case choice == 0 || depth == 0:
		return fmt.Sprint(random.IntN(2))
	case choice == 1:
		return nil
	case choice == 2:
		return int64(random.IntN(2))
	case choice == 3:
		return []any{}
	case choice < 7:
		return []any{randomValue(random, depth-1), randomValue(random, depth-1)}
	case choice < 14:
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{
			"a": randomValue(random, 0), "e": "f",
		}}}
	}
	object := map[string]any{}
	for range 3 {
		object[shapeFields[random.IntN(len(shapeFields))]] = randomValue(random, depth-1)
	}
	return object
}

// changeRandomly changes or removes random fields of an object.
func changeRandomly(random *rand.Rand, object map[string]any) {
	for _, key := range shapeFields {
		value, there := object[key]
		if key == "metadata" || !there {
			continue
		}
		inner, deeper := value.(map[string]any)
		switch choice := random.IntN(6); {
		case deeper && choice < 3:
			changeRandomly(random, inner)
		case choice == 3:
			object[key] = randomValue(random, 3)
		case choice == 4:
			delete(object, key)
		}
	}
}
