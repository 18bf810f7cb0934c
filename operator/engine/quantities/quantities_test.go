package quantities_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/quantities"
)

// excessive are texts that nothing may parse as quantities.
var excessive = []string{
	"1e-999999999", "1e999999999", "-1E+999999999", "0.5e-100", " 1e999999999\t", "1e2147483648", "1e4294967297", ".e100",
	"e999999999", "-e999", "0e999999999", "1e000000001", strings.Repeat("9", 65), strings.Repeat("0", 1<<20) + "Ki",
}

func TestExcessiveQuantitiesAreNotParsed(t *testing.T) {
	t.Parallel()
	for _, text := range excessive {
		require.True(t, quantities.IsExcessive(text), "%.20q", text)
		_, err := quantities.Parse(text)
		require.ErrorContains(t, err, quantities.Forms, "%.20q", text)
		_, err = quantities.Decode([]byte(`"` + strings.TrimSpace(text) + `"`))
		require.ErrorContains(t, err, quantities.Forms, "%.20q", text)
	}
	_, err := quantities.Decode([]byte(`1e-999999999`)) // without quotes
	require.ErrorContains(t, err, quantities.Forms)
}

func TestOtherQuantitiesAreParsedAsKubernetesDoes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0", "1", "-1", "1.5", "500m", "1Ki", "9Ei", "1E", "1e3", "1E-9", "1e99", "0.1e-99", strings.Repeat("9", 64),
		"1.7976931348623157e+30",
	} {
		parsed, err := quantities.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, resource.MustParse(text), parsed, text)
		decoded, err := quantities.Decode([]byte(`"` + text + `"`))
		require.NoError(t, err, text)
		require.Zero(t, parsed.Cmp(decoded), text)
	}
	for _, text := range []string{"", "five", "1GB", "12e4567ab", "commit"} {
		require.False(t, quantities.IsExcessive(text), text)
		_, err := quantities.Parse(text)
		require.Error(t, err, text)
	}
	nothing, err := quantities.Decode([]byte("null"))
	require.NoError(t, err)
	require.True(t, nothing.IsZero())
}

func TestCheckFindsQuantitiesByTheirTypes(t *testing.T) {
	t.Parallel()
	const large = `"1e-999999999"`
	for _, test := range []struct {
		into         any
		data, wanted string
	}{
		{&corev1.ResourceQuota{}, `{"spec": {"hard": {"cpu": "1", "requests.cpu": ` + large + `}}}`, "spec.hard[requests.cpu]"},
		{&corev1.ResourceQuota{}, `{"spec": {"hard": {"pods": 1e-999999999}}}`, "spec.hard[pods]"},
		{&corev1.ResourceQuota{}, `{"status": {"used": {"pods": ` + large + `}}}`, "status.used[pods]"},
		{&corev1.ResourceQuota{}, `{"spec": {"hard": {"pods": ` + large + `, "pods": "1"}}}`, "spec.hard[pods]"},
		{&corev1.ResourceQuota{}, `{"spec": {"hard": {"pods": ` + large + `}}, "spec": {}}`, "spec.hard[pods]"},
		{&corev1.LimitRange{}, `{"spec": {"limits": [{}, {"max": {"cpu": ` + large + `}}]}}`, "spec.limits[1].max[cpu]"},
		{
			&appsv1.Deployment{},
			`{"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": ` + large + `}}}]}}}}`,
			"spec.template.spec.containers[0].resources.limits[cpu]",
		},
		{
			&corev1.PodSpec{}, `{"volumes": [{"emptyDir": {"sizeLimit": ` + large + `}}]}`,
			"volumes[0].emptyDir.sizeLimit", // of an inlined struct, and a pointer
		},
		{&v1alpha1.NamespaceTemplate{}, `{"spec": {"sources": [{"maxSize": ` + large + `}]}}`, "spec.sources[0].maxSize"},
		{&v1alpha1.PolicySpace{}, `{"spec": {"quota": {"hard": {"pods": ` + large + `}}}}`, "spec.quota.hard[pods]"},

		{&corev1.ResourceQuota{}, `{"metadata": {"annotations": {"commit": ` + large + `}}, "spec": {"scopes": [` + large + `]}}`, ""},
		{&corev1.ResourceQuota{}, `{"spec": {"Hard": {"pods": ` + large + `}}}`, ""},
		{&corev1.ResourceQuota{}, `{"spec": {"hard": [` + large + `]}}`, ""},
		{&corev1.ResourceQuota{}, `{"spec": {"hard": {"pods": {"i": ` + large + `}}}}`, ""},
		{&corev1.ResourceQuota{}, `{"spec": [{"hard": {"pods": ` + large + `}}]}`, ""},
		{&corev1.ResourceQuota{}, `{"spec": null, "status": {"hard": null}}`, ""},
		{&corev1.PodSpec{}, `{"containers": [{"env": [{"name": "COMMIT", "value": ` + large + `}]}]}`, ""},
		{&corev1.ConfigMap{}, `{"data": {"a": ` + large + `}}`, ""},
		{&map[string]any{}, `{"spec": {"hard": {"pods": ` + large + `}}}`, ""},
		{nil, `{}`, ""},
	} {
		err := quantities.Check([]byte(test.data), reflect.TypeOf(test.into))
		if test.wanted == "" {
			require.NoError(t, err, test.data)
			continue
		}
		require.EqualError(t, err, test.wanted+` is "1e-999999999": `+quantities.Forms, test.data)
	}
}

func TestCheckObjectKnowsTheKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	object := func(apiVersion, kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind,
			"spec": map[string]any{"hard": map[string]any{"pods": "1e999999999"}},
		}}
	}
	require.ErrorContains(t, quantities.CheckObject(object("v1", "ResourceQuota")), "spec.hard[pods]")
	require.NoError(t, quantities.CheckObject(object("example.com/v1", "ResourceQuota")))
}

// decoded are the texts that a decoder handed to a text.
var decoded []string

// text stands for a quantity, and does not parse.
type text struct{}

func (*text) UnmarshalJSON(data []byte) error {
	decoded = append(decoded, strings.Trim(string(data), `"`))
	return nil
}

// twin has the fields of a ResourceQuota that are quantities.
type twin struct {
	Spec struct {
		Hard map[string]text `json:"hard"`
	} `json:"spec"`
	Status struct {
		Hard map[string]text `json:"hard"`
		Used map[string]text `json:"used"`
	} `json:"status"`
}

// Check never panics, and finds what a decoder would parse.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"spec": {"hard": {"pods": "1e999999999", "cpu": 1e-100}}, "status": {"used": {"pods": 4}}}`))
	f.Add([]byte(`{"spec": {"hard": {"pods": "1", "pods": "1e-9999999"}, "hard": 5}, "spec": [[{"hard": 1e-999}]]} x`))
	f.Add([]byte(`{"a": [{}, [1]], "Spec": {"hard": {"pods": "e999"}}, "status": {"hard": {"pods": {"used": 1e999}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		found := quantities.Check(data, reflect.TypeFor[corev1.ResourceQuota]())
		decoded = nil
		_, err := strictjson.UnmarshalStrict(data, &twin{})
		// A quantity has no characters that need an escape.
		isPlain := !bytes.ContainsRune(data, '\\') && utf8.Valid(data)
		if isPlain && json.Valid(data) {
			require.Equal(t, slices.ContainsFunc(decoded, quantities.IsExcessive), found != nil, "%v", err)
		}
	})
}
