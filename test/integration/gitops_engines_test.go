package integration_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// managers are the field managers of the engines.
var managers = map[gitops.Engine]string{gitops.ArgoCD: "argocd-controller", gitops.Flux: "kustomize-controller"}

// gitopsEngine applies commits in the order of Argo CD or Flux, by the rules that they document.
type gitopsEngine struct {
	*testScope
	program client.Client
	// tracked are the objects that the engine applied, by the file that they are in.
	tracked map[string]map[inventory.ID]*unstructured.Unstructured
}

// hydrateTree returns the files that are committed for a tree. They are also in the form in which they are committed.
func hydrateTree(s *testScope, engine gitops.Engine, root string, files policyTree) ([]gitops.File, *hierarchy.Tree) {
	s.t.Helper()
	directory := fstest.MapFS{}
	for path, content := range files {
		directory[path] = &fstest.MapFile{Data: []byte(content)}
	}
	loaded, err := hierarchy.Load(directory, root)
	require.NoError(s.t, err)
	require.Empty(s.t, loaded.Violations)
	objects, err := loaded.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(s.t, err)
	committed, err := gitops.Files(engine, root, objects)
	require.NoError(s.t, err)
	return committed, loaded.Tree
}

// apply applies objects one after the other, as with "kubectl apply --server-side --force-conflicts". Both engines do
// the same.
func (e *gitopsEngine) apply(manager string, objects []*unstructured.Unstructured) {
	e.t.Helper()
	var stream bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		require.NoError(e.t, err)
		fmt.Fprintf(&stream, "---\n%s", document)
	}
	if len(objects) == 0 {
		return
	}
	_, err := e.kubectl(e.t.Context(), stream.String(), "apply", "--server-side", "--force-conflicts",
		"--field-manager", manager, "--filename", "-")
	require.NoError(e.t, err)
}

// waitNoDrift waits until a dry run of what was applied changes nothing, although the operator and the API server have
// added labels, annotations, finalizers and defaults. Flux finds drift in this way, as does Argo CD with server-side
// diffs. A difference that does not last is a status that was written between the two requests of kubectl.
func (e *gitopsEngine) waitNoDrift(manager string, files []gitops.File) {
	e.t.Helper()
	for _, file := range files {
		for _, object := range file.Objects {
			document, err := yaml.Marshal(object.Object)
			require.NoError(e.t, err)
			e.eventually(func(c *assert.CollectT) {
				_, err := e.kubectl(e.t.Context(), string(document), "diff", "--server-side", "--force-conflicts",
					"--field-manager", manager, "--filename", "-")
				assert.NoError(c, err, render.IDOf(object).String())
			})
		}
	}
}

// track replaces the objects that are tracked for a file. It returns those that the file no longer contains.
func (e *gitopsEngine) track(file gitops.File) []*unstructured.Unstructured {
	if e.tracked == nil {
		e.tracked = map[string]map[inventory.ID]*unstructured.Unstructured{}
	}
	before := e.tracked[file.Path]
	now := map[inventory.ID]*unstructured.Unstructured{}
	for _, object := range file.Objects {
		now[render.IDOf(object)] = object
	}
	e.tracked[file.Path] = now
	var undeclared []*unstructured.Unstructured
	for id, object := range before {
		if now[id] == nil {
			undeclared = append(undeclared, object)
		}
	}
	return undeclared
}

// deleteAll deletes objects as fast as it can, with a ServiceAccount, and does not wait for their finalizers.
func (e *gitopsEngine) deleteAll(objects []*unstructured.Unstructured) {
	e.t.Helper()
	for _, object := range objects {
		require.NoError(e.t, e.program.Delete(e.t.Context(), object.DeepCopy()))
	}
}

// syncArgoCD applies a commit as an Application of Argo CD with automated pruning does. Waves begin at once, because
// Argo CD does not wait for custom resources without a health check. The rules are from these pages of Argo CD:
//
//   - "Sync Phases and Waves": by wave, the lowest first; by kind, Namespaces first, then other resources of
//     Kubernetes, then custom resources; and by name. Deletions begin with the highest wave, and are made before the
//     applies of their wave.
//   - "Sync Options": an object with Prune=false is not pruned; one with PruneLast=true is pruned after all waves.
func (e *gitopsEngine) syncArgoCD(files []gitops.File) {
	e.t.Helper()
	require.Len(e.t, files, 1)
	option := func(object *unstructured.Unstructured, name string) bool {
		return slices.Contains(strings.Split(object.GetAnnotations()["argocd.argoproj.io/sync-options"], ","), name)
	}
	undeclared := slices.DeleteFunc(e.track(files[0]), func(object *unstructured.Unstructured) bool {
		return option(object, "Prune=false")
	})
	slices.SortFunc(undeclared, func(a, b *unstructured.Unstructured) int { return e.compareForArgoCD(b, a) })
	var first, last []*unstructured.Unstructured
	for _, object := range undeclared {
		if option(object, "PruneLast=true") {
			last = append(last, object)
		} else {
			first = append(first, object)
		}
	}
	e.deleteAll(first)
	e.apply(managers[gitops.ArgoCD], slices.SortedFunc(slices.Values(files[0].Objects), e.compareForArgoCD))
	e.deleteAll(last)
}

func (e *gitopsEngine) compareForArgoCD(a, b *unstructured.Unstructured) int {
	kinds := []string{"Namespace", "ClusterRole", "ClusterRoleBinding"}
	order := func(object *unstructured.Unstructured) (wave, kind int) {
		wave, err := strconv.Atoi(cmp.Or(object.GetAnnotations()["argocd.argoproj.io/sync-wave"], "0"))
		require.NoError(e.t, err)
		if kind = slices.Index(kinds, object.GetKind()); kind < 0 {
			kind = len(kinds)
		}
		return wave, kind
	}
	waveOfA, kindOfA := order(a)
	waveOfB, kindOfB := order(b)
	return cmp.Or(waveOfA-waveOfB, kindOfA-kindOfB, strings.Compare(a.GetName(), b.GetName()))
}

// syncFlux applies a commit as two Kustomizations of Flux with prune and wait do, of which the second depends on the
// first. delayed is called between the two: Flux may take half a minute to notice that a dependency is ready. The rules
// are from these sources of Flux:
//
//   - "Kustomization" (docs/spec/v1/kustomizations.md of kustomize-controller): an undeclared object is deleted after
//     the others were applied, but not with the annotation prune: disabled; with wait, a Kustomization is ready when
//     all its objects are.
//   - ssa/manager_apply.go and ssa/sort.go of fluxcd/pkg: CustomResourceDefinitions, Namespaces and ClusterRoles are
//     applied first; all are sorted by kind and name, and deleted in the reverse order.
func (e *gitopsEngine) syncFlux(files []gitops.File, delayed func()) {
	e.t.Helper()
	require.Len(e.t, files, 2)
	for i, file := range files {
		undeclared := e.track(file)
		objects := slices.SortedFunc(slices.Values(file.Objects), compareForFlux)
		definitions := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			return !isFluxDefinition(o)
		})
		e.apply(managers[gitops.Flux], definitions)
		e.apply(managers[gitops.Flux], slices.DeleteFunc(objects, isFluxDefinition))
		undeclared = slices.DeleteFunc(undeclared, func(o *unstructured.Unstructured) bool {
			return o.GetAnnotations()["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
		})
		slices.SortFunc(undeclared, func(a, b *unstructured.Unstructured) int { return compareForFlux(b, a) })
		e.deleteAll(undeclared)
		e.waitHealthy(file.Objects)
		if i == 0 {
			delayed()
		}
	}
}

func isFluxDefinition(object *unstructured.Unstructured) bool {
	return slices.Contains([]string{"CustomResourceDefinition", "Namespace", "ClusterRole"}, object.GetKind())
}

func compareForFlux(a, b *unstructured.Unstructured) int {
	kinds := []string{"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding"}
	order := func(object *unstructured.Unstructured) int {
		if i := slices.Index(kinds, object.GetKind()); i >= 0 {
			return i
		}
		return len(kinds)
	}
	return cmp.Or(order(a)-order(b), strings.Compare(a.GetKind(), b.GetKind()),
		strings.Compare(a.GetName(), b.GetName()))
}

// waitHealthy waits until policy spaces are Ready and templates are Accepted, as the Kustomization in docs/flux.md
// does.
func (e *gitopsEngine) waitHealthy(objects []*unstructured.Unstructured) {
	e.t.Helper()
	conditions := map[string]string{
		"PolicySpace": v1alpha1.ConditionReady, "NamespaceTemplate": v1alpha1.TemplateAccepted,
	}
	e.eventually(func(c *assert.CollectT) {
		for _, object := range objects {
			if condition, has := conditions[object.GetKind()]; has {
				found, all := readObject(e.testScope, c, object)
				observed, _, _ := unstructured.NestedInt64(found.Object, "status", "observedGeneration")
				assert.Equal(c, found.GetGeneration(), observed)
				assert.EqualValues(c, "True", all[condition].Status, render.IDOf(object).String())
			}
		}
	})
}
