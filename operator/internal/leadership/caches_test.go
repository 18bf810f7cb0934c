package leadership

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMissing(t *testing.T) {
	type versions = map[string]string
	for name, c := range map[string]struct {
		stored, known versions
		asOf          string
		// deleted are objects that are found not to exist any more.
		deleted []string
		want    []string
	}{
		"nothing": {asOf: "10"},
		"as it was stored": {
			stored: versions{"a": "3", "b": "9"}, known: versions{"a": "3", "b": "9"}, asOf: "10",
		},
		"newer": {stored: versions{"a": "3"}, known: versions{"a": "11"}, asOf: "10"},
		"older, as numbers": {
			stored: versions{"a": "10", "b": "10"}, known: versions{"a": "9", "b": "10"}, asOf: "10",
			want: []string{"/a"},
		},
		"not known": {
			stored: versions{"b": "3", "a": "4"}, known: versions{}, asOf: "10", want: []string{"/a", "/b"},
		},
		"created since": {
			stored: versions{"a": "3"}, known: versions{"a": "3", "b": "11"}, asOf: "10",
		},
		"deleted before": {
			stored: versions{"a": "3"}, known: versions{"a": "3", "b": "9"}, asOf: "10", want: []string{"/b"},
		},
		"deleted as the last thing": {
			stored: versions{}, known: versions{"b": "10"}, asOf: "10", want: []string{"/b"},
		},
		"deleted since, and never known": {
			stored: versions{"a": "3", "b": "4"}, known: versions{"b": "4"}, asOf: "10", deleted: []string{"a"},
		},
		"deleted since, and not known to be": {
			stored: versions{"a": "3"}, known: versions{"a": "2"}, asOf: "10", deleted: []string{"a"},
			want: []string{"/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := func(from versions) map[client.ObjectKey]string {
				to := map[client.ObjectKey]string{}
				for name, version := range from {
					to[client.ObjectKey{Name: name}] = version
				}
				return to
			}
			stored := Stored{versions: keys(c.stored), asOf: c.asOf}
			if c.deleted != nil {
				now := Stored{versions: keys(c.stored)}
				for _, name := range c.deleted {
					delete(now.versions, client.ObjectKey{Name: name})
				}
				now.versions[client.ObjectKey{Name: "created since"}] = "12"
				stored.forgetDeleted(now)
			}
			require.Equal(t, c.want, stored.missing(keys(c.known)))
		})
	}
}

// paged has objects of a kind that are named by numbers. The continue token is the number of those before a page.
type paged struct {
	client.Client

	objects int
	// fails is the page that cannot be listed, or empty.
	fails    string
	requests []string
}

func (*paged) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return corev1.SchemeGroupVersion.WithKind("ConfigMapList"), nil
}

func (p *paged) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	page := (&client.ListOptions{}).ApplyOptions(options)
	p.requests = append(p.requests, page.Namespace+" from "+page.Continue)
	if p.fails != "" && p.fails == page.Continue {
		return errors.New("no answer")
	}
	before, _ := strconv.Atoi(page.Continue) // it is empty at first
	end := p.objects
	if page.Limit > 0 && before+int(page.Limit) < end {
		end = before + int(page.Limit)
		list.SetContinue(strconv.Itoa(end))
	}
	list.SetResourceVersion("9")
	metadata := list.(*metav1.PartialObjectMetadataList)
	for i := before; i < end; i++ {
		metadata.Items = append(metadata.Items, metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), ResourceVersion: "3"},
		})
	}
	return nil
}

func TestListAsksForPages(t *testing.T) {
	api := &paged{objects: 1001}
	stored, err := List(t.Context(), api, api, &corev1.ConfigMapList{}, client.InNamespace("n"))
	require.NoError(t, err)
	require.Len(t, stored.versions, 1001)
	require.Equal(t, "3", stored.versions[client.ObjectKey{Name: "1000"}])
	require.Equal(t, "9", stored.asOf)
	require.Equal(t, []string{"n from ", "n from 500", "n from 1000"}, api.requests)

	api = &paged{objects: 500}
	stored, err = List(t.Context(), api, api, &corev1.ConfigMapList{})
	require.NoError(t, err)
	require.Len(t, stored.versions, 500)
	require.Len(t, api.requests, 1)

	api = &paged{objects: 1001, fails: "500"}
	_, err = List(t.Context(), api, api, &corev1.ConfigMapList{})
	require.EqualError(t, err, "list ConfigMapList: no answer", "a part of the objects is not taken for all")
}
