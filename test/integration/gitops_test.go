package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/escalation"
)

// The files of hydrate keep their promises in the order in which Argo CD and Flux apply them, commit after commit: a
// namespace opens with all its policies, keeps a permission that an old and a new policy space have in common, and is
// never deleted.
func TestGitOpsEnginesApplyPoliciesBeforeNamespaces(t *testing.T) {
	t.Parallel()
	for _, engine := range []gitops.Engine{gitops.ArgoCD, gitops.Flux} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			writes := newRecorder(t, sharedCluster, s.id, append(slices.Clone(rbacKinds),
				corev1.SchemeGroupVersion.WithResource("resourcequotas"),
				corev1.SchemeGroupVersion.WithResource("namespaces"))...)
			history := applyCommits(s, engine)
			_, err := writes.waitRecorded(t.Context())
			require.NoError(t, err)
			records := writes.finishRecords(s.id)
			expectOpenedWith(t, records, history.expected)
			expectAlwaysViewable(t, records, s.name("first"))
			for _, record := range records {
				if record.Object.GetKind() == "Namespace" {
					require.False(t, record.Deleted, record.Object.GetName())
					require.Nil(t, record.Object.GetDeletionTimestamp(), record.Object.GetName())
				}
				if engine == gitops.ArgoCD && record.Object.GetLabels()[v1alpha1.PolicySpaceLabel] == s.name("team") {
					require.NotContains(t, fmt.Sprint(record.Object.Object["status"]), "PolicySpaceNotFound",
						"the policy space was pruned before its namespaces moved")
				}
			}
		})
	}
}

// gitopsHistory is what commits declare.
type gitopsHistory struct {
	// expected has the objects that a namespace inherits and declares in the commit that creates it.
	expected map[string][]string
}

// applyCommits applies commits that create namespaces with policies of their own, rename a policy space, and no longer
// declare one namespace, and then all.
func applyCommits(s *testScope, engine gitops.Engine) gitopsHistory {
	s.t.Helper()
	root, first, second := s.name("root"), s.name("first"), s.name("second")
	e := &gitopsEngine{testScope: s, program: s.newProgram()}
	history := gitopsHistory{map[string][]string{}}
	sync := func(files policyTree, between func()) []gitops.File {
		s.t.Helper()
		committed, tree := hydrateTree(s, engine, root, files)
		for ns, names := range flatNames(s, tree) {
			if history.expected[ns] == nil {
				history.expected[ns] = names
			}
		}
		if engine == gitops.ArgoCD {
			e.syncArgoCD(committed)
		} else {
			e.syncFlux(committed, between)
		}
		return committed
	}
	nothing := func() {}

	team := s.name("team")
	files := policyTree{
		team + "/viewers.yaml": viewerBinding("viewers"),
		team + "/quota.yaml":   podQuota("quota"),
	}
	declareObjects(files, team, first)
	sync(files, nothing)
	s.waitPopulated(namespaceNamed(first))

	// The namespace of a later commit is in a policy space that exists, and whose policies change with it.
	files[team+"/editors.yaml"] = bindingToClusterRole("editors", "edit", "editors")
	declareObjects(files, team, second)
	committed := sync(files, nothing)
	s.waitPopulated(namespaceNamed(second))
	s.waitPresent(namespaceNamed(first), bindingToClusterRole(team+".editors", "edit", "editors"))
	e.waitNoDrift(managers[engine], committed)

	crew, renamed := s.name("crew"), policyTree{}
	for path, content := range files {
		renamed[crew+strings.TrimPrefix(path, team)] = content
	}
	sync(renamed, func() {
		// The old policy space is deleted before the namespaces move, and the operator knows.
		s.waitReason(namespaceNamed(first), "PolicySpaceNotFound")
	})
	s.waitAbsent(namespaceNamed(first), viewerBinding(team+".viewers"))
	s.waitPresent(namespaceNamed(first), viewerBinding(crew+".viewers"))

	maps.DeleteFunc(renamed, func(path, _ string) bool { return strings.HasPrefix(path, crew+"/"+second) })
	sync(renamed, nothing)
	s.waitAbsent(namespaceNamed(second), readerRole("own", "secrets"))
	sync(policyTree{"viewers.yaml": viewerBinding("viewers")}, nothing)
	for _, ns := range []string{first, second} {
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{}))
	}
	return history
}

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// declareObjects adds a namespace directory with policies of its own to a tree.
func declareObjects(files policyTree, space, ns string) {
	path := space + "/" + ns
	files.addNamespace(path, ns)
	files[path+"/role.yaml"] = readerRole("own", "secrets")
	files[path+"/binding.yaml"] = bindingToRole("own", "own", "sam")
	files[path+"/quota.yaml"] = podQuota("own")
}

// flatNames returns the kinds and names of the objects that each namespace of a tree has or inherits.
func flatNames(s *testScope, tree *hierarchy.Tree) map[string][]string {
	s.t.Helper()
	objects, err := tree.FlatObjects()
	require.NoError(s.t, err)
	names := map[string][]string{}
	for _, object := range objects {
		if object.GetNamespace() != "" {
			names[object.GetNamespace()] = append(names[object.GetNamespace()], kindAndName(object))
		}
	}
	return names
}

func kindAndName(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// expectOpenedWith checks that namespaces had all their objects when they were opened.
func expectOpenedWith(t *testing.T, records []escalation.Record, expected map[string][]string) {
	t.Helper()
	require.Len(t, expected, 2)
	opened := map[string]bool{}
	present := map[string]map[string]bool{}
	for _, record := range inOrder(records) {
		object := record.Object
		ns := namespaceOrName(object)
		if present[ns] == nil {
			present[ns] = map[string]bool{}
		}
		if object.GetKind() != "Namespace" {
			present[ns][kindAndName(object)] = !record.Deleted
			continue
		}
		if _, initializing := object.GetLabels()[v1alpha1.InitializingLabel]; initializing || opened[ns] {
			continue
		}
		opened[ns] = true
		require.NotEmpty(t, expected[ns], ns)
		for _, name := range expected[ns] {
			assert.True(t, present[ns][name], "%s was opened without %s", ns, name)
		}
	}
	for ns := range expected {
		require.True(t, opened[ns], ns)
	}
}

// expectAlwaysViewable checks that a namespace, once it was opened, had a RoleBinding that lets viewer view it in every
// moment until its last policy space was deleted.
func expectAlwaysViewable(t *testing.T, records []escalation.Record, ns string) {
	t.Helper()
	granting := map[string]bool{}
	everGranting := map[string]bool{}
	for _, record := range inOrder(records) {
		object := record.Object
		if object.GetKind() != "RoleBinding" || object.GetNamespace() != ns ||
			!strings.HasSuffix(object.GetName(), ".viewers") {
			continue
		}
		if record.Deleted {
			delete(granting, object.GetName())
			require.NotEmpty(t, granting, "%s was deleted before another one was created", object.GetName())
		} else {
			granting[object.GetName()], everGranting[object.GetName()] = true, true
		}
	}
	require.Greater(t, len(everGranting), 1)
}

// inOrder returns records in the order in which the API server made the writes.
func inOrder(records []escalation.Record) []escalation.Record {
	return slices.SortedFunc(slices.Values(records), func(a, b escalation.Record) int {
		return int(a.Revision) - int(b.Revision)
	})
}
