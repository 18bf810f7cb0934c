package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
)

// all returns the objects of a content, by kind and name.
func (c content) all(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	folder, err := c.writeTree(t.TempDir())
	require.NoError(t, err)
	compiled, err := compile(folder)
	require.NoError(t, err, "the tree must be valid")
	all := map[string]*unstructured.Unstructured{}
	for _, list := range [][]*unstructured.Unstructured{
		compiled, c.templates(), c.attributeRules(0), c.securityConstraints(0),
	} {
		for _, object := range list {
			require.NotContains(t, all, nameOf(object))
			all[nameOf(object)] = object
		}
	}
	return all
}

func kinds(all map[string]*unstructured.Unstructured) map[string]int {
	count := map[string]int{}
	for _, object := range all {
		count[object.GetKind()]++
	}
	return count
}

func TestContentHasTheSharesOfItsSize(t *testing.T) {
	require.Equal(t, map[string]int{
		"NamespaceTemplate": 1009, "PolicySpace": 208, "ProtectedAttribute": 200, "SecurityContextConstraints": 10,
	}, kinds(content(1000).all(t)))
}

func TestSmallerContentIsPartOfALargerOne(t *testing.T) {
	small, large := content(17).all(t), content(300).all(t)
	for name, object := range small {
		require.Contains(t, large, name)
		require.Equal(t, object.Object, large[name].Object)
	}
}

func TestTemplatesDeclareTenObjectsForEachNamespace(t *testing.T) {
	const size = content(250)
	var templates []*v1alpha1.NamespaceTemplate
	var spaces []*v1alpha1.PolicySpace
	for _, object := range size.all(t) {
		switch object.GetKind() {
		case "NamespaceTemplate":
			templates = append(templates, convert[v1alpha1.NamespaceTemplate](t, object))
		case "PolicySpace":
			spaces = append(spaces, convert[v1alpha1.PolicySpace](t, object))
		}
	}
	forest := hierarchy.NewForest(spaces)
	for i := range int(size) {
		ns, err := forest.Placed(newNamespace(i))
		require.NoError(t, err)
		ns.Labels[corev1.LabelMetadataName] = ns.Name
		ns.Labels[hierarchy.DepthLabel(root)] = "5"
		declared := map[string]bool{}
		for _, template := range templates {
			selector, err := match.Selector(template.Spec.Namespaces)
			require.NoError(t, err)
			if !selector.Matches(labels.Set(ns.Labels)) {
				continue
			}
			for number := range template.Spec.Templates {
				declared[template.Name+"/"+strconv.Itoa(number)] = true
			}
		}
		require.Len(t, declared, objectsPerNamespace, "namespace %s, labels %v", ns.Name, ns.Labels)
	}
	require.Len(t, floorObjects(), objectsPerNamespace)
}

func convert[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	made := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, made))
	return made
}

func TestTreeHasViolationsOnlyIfItIsBroken(t *testing.T) {
	folder, err := content(5).writeTree(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(folder, north, moved, divisionName(0), teamName(0), namespaceName(0), "role.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"), 0o600))
	_, err = compile(folder)
	require.ErrorContains(t, err, "the tree has 1 violations")
}
