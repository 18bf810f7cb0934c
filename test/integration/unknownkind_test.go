package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// cogs is a kind of a group of its own.
type cogs struct {
	*testScope
	group string
}

// newCogs creates the definition of a kind in a group, and lets the operator populate it.
func newCogs(s *testScope, group string) cogs {
	s.t.Helper()
	c := cogs{s, group}
	c.allow()
	c.serve("v1")
	return c
}

// allow gives the operator the rights on the kind.
func (c cogs) allow() {
	c.t.Helper()
	_, err := c.kubectl(c.t.Context(), fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %s, labels: {policy.nstpl.dev/aggregate-to-operator: "true"}}
rules: [{apiGroups: [%s], resources: ["*"], verbs: [list, watch, create, patch, delete]}]
`, c.group, c.group), "apply", "--filename", "-")
	require.NoError(c.t, err)
}

// serve has the API server serve versions of the kind, the first of which is stored. It ends the watches of the kind.
func (c cogs) serve(served ...string) {
	c.t.Helper()
	const version = "{name: %s, served: %t, storage: %t, schema: {openAPIV3Schema: {type: object, " +
		"x-kubernetes-preserve-unknown-fields: true}}}"
	var versions []string
	for _, name := range []string{"v1", "v1alpha1"} {
		isServed := strings.Contains(" "+strings.Join(served, " ")+" ", " "+name+" ")
		versions = append(versions, fmt.Sprintf(version, name, isServed, name == served[0]))
	}
	_, err := c.kubectl(c.t.Context(), fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cogs.%s}
spec:
  group: %s
  names: {kind: Cog, plural: cogs}
  scope: Namespaced
  versions: [%s]
`, c.group, c.group, strings.Join(versions, ", ")), "apply", "--filename", "-")
	require.NoError(c.t, err)
	// Its discovery follows a moment later, and the operator admits templates by that.
	slices.Sort(served)
	c.eventually(func(collect *assert.CollectT) {
		answer, err := c.kubectl(c.t.Context(), "", "get", "--raw", "/apis")
		if !assert.NoError(collect, err) {
			return
		}
		groups := &metav1.APIGroupList{}
		require.NoError(c.t, json.Unmarshal([]byte(answer), groups))
		var found []string
		for _, group := range groups.Groups {
			for _, version := range group.Versions {
				if group.Name == c.group {
					found = append(found, version.Version)
				}
			}
		}
		slices.Sort(found)
		assert.Equal(collect, served, found)
	})
}

// declared returns a declared object of the kind.
func (c cogs) declared(version, name string) string {
	return fmt.Sprintf("{apiVersion: %s/%s, kind: Cog, metadata: {name: %s}, spec: {teeth: 8}}", c.group, version, name)
}

// patch changes an object of the kind as an administrator, as soon as the API server serves the version.
func (c cogs) patch(ns *corev1.Namespace, version, name string) {
	c.t.Helper()
	c.eventually(func(collect *assert.CollectT) {
		_, err := c.kubectl(c.t.Context(), "", "patch", "cogs."+version+"."+c.group, name, "--namespace", ns.Name,
			"--type", "merge", "--patch", `{"spec": {"teeth": 9}}`)
		assert.NoError(collect, err)
	})
}

// When a CustomResourceDefinition no longer serves the version that the operator watches, the watch goes on in another
// version.
func TestAWatchFollowsTheServedVersion(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	kind := newCogs(s, "versions.example.org")
	kind.serve("v1alpha1")
	template := s.createTemplate("defaults", kind.declared("v1alpha1", "c"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, kind.declared("v1alpha1", "c"))

	kind.serve("v1", "v1alpha1")
	s.updateTemplate(template, withObjects(t, kind.declared("v1", "c")))
	s.waitPresent(ns, kind.declared("v1", "c"))
	s.waitPopulated(ns)
	kind.serve("v1")
	kind.patch(ns, "v1", "c")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "cog."+kind.group+"/c: drifted: ")
	})
	s.updateTemplate(template, func(t *v1alpha1.NamespaceTemplate) { t.Spec.DriftPolicy = v1alpha1.DriftCorrect })
	s.waitPresent(ns, kind.declared("v1", "c"))
	s.delete(s.mustGet(ns, parseYAML(t, kind.declared("v1", "c"))[0]))
	s.waitPresent(ns, kind.declared("v1", "c"))
	s.waitPopulated(ns)
}

// While a kind that was listed before can no longer be listed, its objects are unknown: the template and the namespace
// say so, and nothing of it is deleted. Afterwards, what happened meanwhile is seen.
func TestAKindThatCanNoLongerBeListedIsUnknown(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	for name, test := range map[string]struct {
		lose, restore func(kind cogs)
		reason        string
	}{
		"withdrawn rights": {
			func(kind cogs) {
				_, err := kind.kubectl(t.Context(), "", "delete", "clusterrole", kind.group)
				require.NoError(t, err)
			},
			cogs.allow,
			"is forbidden",
		},
		"an aggregated API that is down": {
			func(kind cogs) {
				_, err := kind.kubectl(t.Context(), "", "patch", "apiservice", "v1."+kind.group, "--type", "merge", "--patch",
					`{"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": null}},
					"spec": {"insecureSkipTLSVerify": true,
						"service": {"namespace": "default", "name": "missing", "port": 443}}}`)
				require.NoError(t, err)
			},
			func(kind cogs) { // the API server registers it again, as one that it serves itself
				_, err := kind.kubectl(t.Context(), "", "delete", "apiservice", "v1."+kind.group)
				require.NoError(t, err)
			},
			"can no longer be listed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			kind := newCogs(s, strings.ReplaceAll(strings.ToLower(name), " ", "-")+".example.org")
			template := s.createTemplate("defaults", documents(kind.declared("v1", "a"), kind.declared("v1", "b")),
				withSelectorLabel("defaults"))
			ns := s.createPopulatedNamespace("a", withLabel("of", "defaults"))
			s.waitPresent(ns, documents(kind.declared("v1", "a"), kind.declared("v1", "b")))
			s.createTemplate("authority", configMap("settings", "v"), withSelectorLabel("authority"),
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: kind.group, Kind: "Cog"}}
				})
			governed := s.createPopulatedNamespace("b", withLabel("of", "authority"))

			test.lose(kind)
			kind.serve("v1", "v1alpha1") // the API server ends watches by itself after some minutes
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
				assert.Equal(c, "KindsUnavailable", accepted.Reason)
				assert.Contains(c, accepted.Message, test.reason)
				assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled))
			})
			s.waitNotPopulated(ns, "cogs."+kind.group+" can no longer be listed")
			s.waitNotPopulated(governed, "the undeclared objects of kind Cog."+kind.group+" are unknown")
			s.eventually(func(c *assert.CollectT) {
				report, _ := runCheck(t, c, sharedCluster)
				assert.Contains(c, report.messages("failure")["namespacetemplates"], "can no longer be listed")
			})

			test.restore(kind)
			kind.patch(ns, "v1", "a")
			s.eventually(func(c *assert.CollectT) {
				_, err := s.kubectl(t.Context(), "", "delete", "cogs.v1."+kind.group, "b", "--namespace", ns.Name)
				assert.NoError(c, err)
			})
			s.waitPopulated(ns)
			s.waitPopulated(governed)
			s.waitPresent(ns, documents(kind.declared("v1", "a"), kind.declared("v1", "b")))
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady))
			})
		})
	}
}

// A template that does not declare a kind any more works without its CustomResourceDefinition.
func TestAFormerKindThatIsUninstalledIsNotMissed(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	kind := newCogs(s, "former.example.org")
	former := s.createTemplate("former", documents(kind.declared("v1", "c"), configMap("a", "1")))
	s.createTemplate("still", kind.declared("v1", "d"))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, documents(kind.declared("v1", "c"), kind.declared("v1", "d")))
	s.updateTemplate(former, withObjects(t, configMap("a", "2")))
	s.waitAbsent(ns, kind.declared("v1", "c"))
	_, err := s.kubectl(t.Context(), "", "delete", "customresourcedefinition", "cogs."+kind.group)
	require.NoError(t, err)
	acceptedReason := func(reason string) func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		return func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
			assert.Equal(c, reason, accepted.Reason, accepted.Message)
		}
	}
	still := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.name("still")}}
	s.waitTemplateStatus(still, acceptedReason("KindsUnavailable")) // the operator knows that the kind is gone
	s.updateTemplate(former, withObjects(t, configMap("a", "3")))
	s.waitTemplateStatus(former, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		acceptedReason("Accepted")(c, status)
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady))
	})
}
