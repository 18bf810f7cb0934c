package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// A user may hide that a failure is theirs: by removing their entry from managedFields, or where the operator cannot
// try the declared object, because a quota is full or another object is in the way of the trial. Such a failure stops
// no rollout either.
func TestAHiddenFailureOfATenantStopsNoRollout(t *testing.T) {
	for name, prepare := range map[string]func(s *testScope, owner client.Client, ns *corev1.Namespace, hash string){
		"without an entry in managedFields": func(s *testScope, owner client.Client, ns *corev1.Namespace, _ string) {
			s.stripOthers(owner, ns)
		},
		"with a full quota": func(s *testScope, _ client.Client, ns *corev1.Namespace, _ string) {
			s.createObjects(ns.Name, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: full}, "+
				"spec: {hard: {count/configmaps: 1}}}")
			s.eventually(func(c *assert.CollectT) { // until the quota is counted
				assert.ErrorContains(c, s.client.Create(s.t.Context(), newConfigMap(ns.Name, "more"), client.DryRunAll),
					"exceeded quota")
			})
		},
		"with an object in the way of the trial": func(
			s *testScope, owner client.Client, ns *corev1.Namespace, hash string,
		) {
			trial := newConfigMap(ns.Name, "nstpl-trial-"+hash)
			trial.Immutable = new(true)
			require.NoError(s.t, owner.Create(s.t.Context(), trial))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			user, declared := s.name("owner"), configValue
			if name == "with a full quota" { // the object remains, because there is no room for another in its place
				declared = func(value string) string {
					return strings.Replace(configValue(value), "{name: ", "{annotations: {policy/replace: 'true'}, name: ", 1)
				}
			}
			template := s.createTemplate("a", documents(grantTo("owner", user), declared("one")))
			first, second := s.createPopulatedNamespace("first"), s.createPopulatedNamespace("second")
			s.waitRollout(template, v1alpha1.RolloutComplete)
			owner, err := s.newUserClient(user)
			require.NoError(t, err)
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				pausesRollout(template)
				withObjects(t, documents(grantTo("owner", user), declared("two")))(template)
			})
			s.waitRollout(template, v1alpha1.RolloutPaused)
			later := s.createPopulatedNamespace("later") // the user has another namespace, with the newest revision
			hash := s.mustGet(later, theConfigMap("config")).GetAnnotations()[v1alpha1.HashAnnotation]
			var immutable []types.UID
			for _, ns := range []*corev1.Namespace{first, second} {
				config := theConfigMap("config")
				config.Namespace = ns.Name
				require.NoError(t, owner.Patch(t.Context(), config, mergePatch(`{"immutable": true}`)))
				immutable = append(immutable, config.UID)
				prepare(s, owner, ns, hash)
			}
			s.updateTemplate(template, resumesRollout)
			s.waitRollout(template, v1alpha1.RolloutComplete)
			for i, ns := range []*corev1.Namespace{first, second} {
				require.Equal(t, immutable[i], s.mustGet(ns, theConfigMap("config")).GetUID())
			}
			waitValues(s, []*corev1.Namespace{first, second, later}, map[string]int{"one": 2, "two": 1})
		})
	}
}

// stripOthers has a user remove the entries of all clients but nstpl from the managedFields of the ConfigMap "config".
func (s *testScope) stripOthers(user client.Client, ns *corev1.Namespace) {
	s.t.Helper()
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		config := theConfigMap("config")
		if err := user.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "config"}, config); err != nil {
			return err
		}
		config.ManagedFields = slices.DeleteFunc(config.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return !populate.IsOwnEntry(&entry)
		})
		return user.Update(s.t.Context(), config)
	}))
}
