package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// fill has a user fill an object with labels up to the limit of etcd, so that it takes no further field.
func (s *testScope) fill(ns *corev1.Namespace, user client.Client, yaml string) {
	s.t.Helper()
	object := parseYAML(s.t, yaml)[0]
	object.SetNamespace(ns.Name)
	next := 0
	for n := 4096; n > 0; {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprint("label-", next+i)] = strings.Repeat("x", 60)
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		require.NoError(s.t, err)
		if err := user.Patch(s.t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, body)); err != nil {
			// The API server then leaves out managedFields, and the guard denies that.
			require.Regexp(s.t, "too large|managedFields", err.Error())
			n /= 2
			continue
		}
		next += n
	}
}

// A RoleBinding that its owner filled with labels takes no subject. It is replaced, and others are revoked. The test is
// not parallel, since rules about protected attributes, which others create, deny so many labels.
func TestAFilledGrantKeepsNoRevokedGrant(t *testing.T) {
	s := newScope(t, sharedCluster)
	name := s.name("owner")
	readers := strings.Repeat("reader", 40)
	template := s.createTemplate("grants", documents(grantTo("owner", name), grantTo(replacedName, "a")))
	ns := s.createPopulatedNamespace("a")
	owner, err := s.newUserClient(name)
	require.NoError(t, err)
	s.fill(ns, owner, grantTo(replacedName, "a"))
	s.updateTemplate(template, withObjects(t, grantTo(replacedName, readers)))
	s.eventually(func(c *assert.CollectT) {
		assert.Empty(c, s.subjectsOf(ns, "owner"))
		assert.Equal(c, []string{readers}, s.subjectsOf(ns, replacedName))
	})
	s.waitPopulated(ns)
}

// Every user who may patch a namespace may fill it with managedFields. The API server drops these where they keep the
// operator from writing the labels, the records and the condition of the namespace.
func TestAFilledNamespaceGetsItsLabelsAndCondition(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("enforce")
	s.createTemplate("labels", configMap("a", "v"), labelsNamespaces(label, "restricted"))
	ns := s.createPopulatedNamespace("a")
	waitLabels(s, ns, label, "restricted")
	user := s.newUserWithRules("patcher", policyRule("patch", "", "namespaces"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	controlplane.FillManagers(t, user, ns.Name, label)
	waitLabels(s, ns, label, "restricted")

	controlplane.FillManagers(t, user, ns.Name, "other")
	more := s.createTemplate("more", configMap("b", "v"))
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found)) {
			assert.Contains(c, populate.PopulatedCondition(found).Message, more.Name)
		}
	})
}
