package render

import (
	"reflect"
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
		samples = append(samples, Sample{sample, isUnusual})
	}
	add(extremeValues, false)
	add(typicalValues, false)
	if needsCreator(object.Object) {
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
