package vetting

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// pages is a reader that returns one object a page.
type pages struct {
	client.Reader
	objects []metav1.PartialObjectMetadata
}

func (p pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	page := (&client.ListOptions{}).ApplyOptions(options).Continue // as many characters as pages were read
	list.(*metav1.PartialObjectMetadataList).Items = p.objects[len(page) : len(page)+1]
	list.SetContinue("")
	if len(page)+1 < len(p.objects) {
		list.SetContinue(page + "n")
	}
	return nil
}

// A template may have more leftovers of an earlier one of its name than one list returns.
func TestEveryPageIsSearchedForLeftovers(t *testing.T) {
	t.Parallel()
	object := func(name string, annotations map[string]string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	adopted := map[string]string{v1alpha1.AdoptedAnnotation: "true"}
	for name, test := range map[string]struct {
		objects []metav1.PartialObjectMetadata
		want    string
	}{
		"on the first page":  {[]metav1.PartialObjectMetadata{object("left", nil), object("declared", nil)}, "left"},
		"on the second page": {[]metav1.PartialObjectMetadata{object("declared", nil), object("left", nil)}, "left"},
		"on the third page": {
			[]metav1.PartialObjectMetadata{
				object("declared", nil), object("adopted", adopted), object("left", nil),
			}, "left",
		},
		"on none": {[]metav1.PartialObjectMetadata{object("declared", nil), object("adopted", adopted)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			updated := templateWith(nil,
				`{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "declared"}}`)
			known := meta.NewDefaultRESTMapper([]schema.GroupVersion{gadget.GroupVersion()})
			known.Add(gadget, meta.RESTScopeNamespace)
			v := &review{
				Admission: NewAdmission(Options{Mapper: known, Live: pages{objects: test.objects}}),
				edit:      edit{old: updated, updated: updated},
			}
			left, err := v.leftover(t.Context(), gadget, []render.Variant{}, true)
			require.NoError(t, err)
			if test.want == "" {
				require.Nil(t, left)
				return
			}
			require.NotNil(t, left)
			require.Equal(t, test.want, left.Name)
		})
	}
}
