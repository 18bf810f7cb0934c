package integration_test

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// For users whom a template may restrict, the API server looks up each label among the selectors, at a cost that it
// limits. A user who gives a namespace labels up to that limit does not keep the operator from adding one.
func TestLongLabelsStopNoLabelsOfTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	values := make([]string, 32)
	for i := range values {
		values[i] = fmt.Sprint(strings.Repeat("v", 60), i)
	}
	s.createTemplate("guarded", configMap("a", "v"), requiresUse, func(template *v1alpha1.NamespaceTemplate) {
		selector := template.Spec.Namespaces.LabelSelector
		selector.MatchLabels["class"] = s.id
		for i := range 3 {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: fmt.Sprint("unset-", i), Operator: metav1.LabelSelectorOpNotIn, Values: values,
			})
		}
	})
	ns := s.createNamespace("full")
	s.waitInitialized(ns)
	owner := s.newUserWithRules("owner", policyRule("get patch", "", "namespaces"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	// The values end like that of the label class, as the selectors are found by the last character.
	value := strings.Repeat("x", 62) + s.id[len(s.id)-1:]
	key := func(i int) string {
		part := strings.Repeat("d", 60) + "."
		return fmt.Sprintf("%s%s%s%s/%s-%03d", part, part, part, s.id, strings.Repeat("n", 59), i)
	}
	label := func(number int, options ...client.PatchOption) error {
		labels := map[string]string{}
		for i := range number {
			labels[key(i)] = value
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		require.NoError(t, err)
		return owner.Patch(t.Context(), ns.DeepCopy(), client.RawPatch(types.MergePatchType, body), options...)
	}
	most := 0
	s.eventually(func(c *assert.CollectT) { // guarded templates of other tests count, too
		most = sort.Search(200, func(number int) bool { return label(number+1, client.DryRunAll) != nil })
		assert.ErrorContains(c, label(most+1, client.DryRunAll), "actual cost limit exceeded")
		assert.NoError(c, label(most))
	})
	s.createTemplate("labels", "", labelsNamespaces(key(most), value))
	waitLabels(s, ns, key(most), value)
}
