package render

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Sample is an object with the tokens replaced as in one kind of namespaces.
type Sample struct {
	*unstructured.Unstructured
	// Unusual is true if the creator has a name that is not valid in every field. Then a field that is invalid is so
	// only in the namespaces of such users.
	Unusual bool
	// Long is true if the namespace has the longest possible name, and the sample of a typical one is another.
	Long bool
}

// extremeValues have the longest possible name of a namespace, and a creator whose name is valid in most fields. Both
// are unlike other texts, so that Unrender finds them.
var extremeValues = Values{Namespace: longestValues.Namespace, Creator: "nstpl-trial-creator", sample: SampleValue}

// typicalValues are the values of tokens in most namespaces.
var typicalValues = Values{Namespace: "team-a", Creator: "jane", sample: SampleValue}

// unusualValues have the name of a user that is not a valid name of an object, label or host.
var unusualValues = Values{
	Namespace: typicalValues.Namespace, Creator: "system:serviceaccount:ci:jane@example.com", sample: SampleValue,
}

// Samples returns an object of a compiled template as it is rendered in a namespace with the longest possible name, in
// a typical one, and in one whose creator has an unusual name. Equal samples are returned once, so an object without
// tokens has one sample. The samples are in the namespace v1alpha1.TrialNamespace.
func Samples(object *unstructured.Unstructured) []Sample {
	var samples []Sample
	add := func(values Values, isUnusual bool) {
		sample := values.stampObject(object)
		sample.SetNamespace(v1alpha1.TrialNamespace)
		for _, other := range samples {
			if reflect.DeepEqual(other.Object, sample.Object) {
				return
			}
		}
		samples = append(samples, Sample{Unstructured: sample, Unusual: isUnusual})
	}
	add(extremeValues, false)
	add(typicalValues, false)
	samples[0].Long = len(samples) > 1
	if containsToken(object.Object, CreatorToken) {
		add(unusualValues, true)
	}
	return samples
}

// Unrender returns a text of the API server about a sample, with tokens in place of the values that the samples have
// for them, except for the typical ones.
func Unrender(text string) string {
	return unrenderer.Replace(text)
}

var unrenderer = strings.NewReplacer(extremeValues.Namespace, NamespaceToken, extremeValues.Creator, CreatorToken,
	unusualValues.Creator, CreatorToken)

// MetadataSample is what a template declares for the labels and annotations of namespaces, with the tokens replaced as
// in one kind of namespaces.
type MetadataSample struct {
	// Path is the path of the declaration in the template.
	Path string
	// Values are those of the template and, if Path is that of an overlay, of the overlay.
	Values map[MetadataKey]string
	// ByUsers is true if users choose a part of the values: they have the token of the creator, of a label or of an
	// annotation.
	ByUsers bool
}

// MetadataSamples returns the labels and annotations that a template declares, without overlays and with each overlay
// that declares some, in a namespace with the longest possible name and in a typical one. Equal samples are returned
// once.
func MetadataSamples(template *v1alpha1.NamespaceTemplate) []MetadataSample {
	var samples []MetadataSample
	add := func(path string, declared map[MetadataKey]string) {
		for _, values := range []Values{extremeValues, typicalValues} {
			sample := MetadataSample{Path: path, Values: make(map[MetadataKey]string, len(declared))}
			for key, value := range declared {
				sample.Values[key] = values.expand(value)
				sample.ByUsers = sample.ByUsers || UserToken(value) != ""
			}
			isSame := func(other MetadataSample) bool { return maps.Equal(other.Values, sample.Values) }
			if len(declared) > 0 && !slices.ContainsFunc(samples, isSame) {
				samples = append(samples, sample)
			}
		}
	}
	add("spec.namespaceMetadata", metadataOf(template, nil))
	for i := range template.Spec.Overlays {
		if overlay := &template.Spec.Overlays[i]; overlay.NamespaceMetadata != nil {
			add(Part{Overlays, i}.String()+".namespaceMetadata", metadataOf(template, []string{overlay.Name}))
		}
	}
	return samples
}
