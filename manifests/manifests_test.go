package manifests_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"nstpl.dev/nstpl/manifests"
)

// Objects are those that kustomize builds, except for the definitions, which package crd has.
func TestObjectsAreThoseThatKustomizeBuilds(t *testing.T) {
	t.Parallel()
	objects, err := manifests.Objects()
	require.NoError(t, err)
	got := make([]string, 0, len(objects))
	for _, object := range objects {
		got = append(got, object.GetAPIVersion()+" "+object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	require.NoError(t, err)
	want := make([]string, 0, built.Size())
	for _, object := range built.Resources() {
		if object.GetKind() == "FlowSchema" {
			require.NoError(t, object.SetNamespace("")) // kustomize does not know that the kind is cluster-scoped
		}
		if object.GetKind() != "CustomResourceDefinition" {
			want = append(want, object.GetApiVersion()+" "+object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
		}
	}
	require.ElementsMatch(t, want, got)
}
