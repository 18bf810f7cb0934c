package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The roleRef of a RoleBinding cannot change. So a user who creates another RoleBinding in place of a populated one
// could switch off what a template grants to others, such as auditors.
func TestAReplacedRoleBindingSwitchesOffNoGrantOfOthers(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	name := s.name("owner")
	auditors := strings.Replace(grantTo(replacedName, "auditor"), "name: admin}", "name: view}", 1)
	s.createTemplate("a", documents(grantTo("owner", name), auditors))
	ns := s.createPopulatedNamespace("a")
	owner, err := s.newUserClient(name)
	require.NoError(t, err)
	theirs := parseYAML(t, grantTo(replacedName, name))[0]
	theirs.SetNamespace(ns.Name)
	s.eventually(func(c *assert.CollectT) {
		require.NoError(t, client.IgnoreNotFound(owner.Delete(t.Context(), theirs.DeepCopy())))
		err := owner.Create(t.Context(), theirs.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		assert.NoError(c, err)
	})
	s.waitPresent(ns, auditors)
	s.waitPopulated(ns)
}
