package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// labelling returns a template that sets labels and annotations of namespaces.
func labelling(labels, annotations map[string]string) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: labels, Annotations: annotations}
	return template
}

func TestStampMetadata(t *testing.T) {
	t.Parallel()
	template := labelling(map[string]string{"tier": "low", "of": "$(NAMESPACE)"},
		map[string]string{"contact": "$(CREATOR)", "literal": "$$(CREATOR)"})
	for name, labels := range map[string]map[string]string{"high": {"tier": "high"}, "top": {"tier": "top", "more": "x"}} {
		template.Spec.Overlays = append(template.Spec.Overlays, v1alpha1.Overlay{
			Name: name, Namespaces: template.Spec.Namespaces,
			NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: labels},
		})
	}
	compiled, err := Compile(t.Context(), template, nil)
	require.NoError(t, err)
	require.True(t, len(compiled.metadata) > 0)
	values, omitted := compiled.StampMetadata(Values{Namespace: "n", Creator: "jane@example.com"})
	require.Empty(t, omitted)
	require.Equal(t, map[MetadataKey]string{
		{Labels, "tier"}: "low", {Labels, "of"}: "n", {Annotations, "contact"}: "jane@example.com",
		{Annotations, "literal"}: "$(CREATOR)",
	}, values)

	values, omitted = compiled.StampMetadata(Values{Namespace: "n"})
	require.NotContains(t, values, MetadataKey{Annotations, "contact"})
	require.Equal(t, []Omission{{
		Template: "t", Kind: NamespaceKind, Name: "n",
		Reason: "annotation contact names the namespace's creator, who is not known",
	}}, omitted)

	compiled, err = Compile(t.Context(), template, []string{"top"})
	require.NoError(t, err)
	values, _ = compiled.StampMetadata(Values{Namespace: "n"})
	require.Equal(t, "top", values[MetadataKey{Labels, "tier"}])
	require.Equal(t, "x", values[MetadataKey{Labels, "more"}])
	require.Equal(t, "n", values[MetadataKey{Labels, "of"}])
}

func TestVetChecksNamespaceMetadata(t *testing.T) {
	t.Parallel()
	const security = "pod-security.kubernetes.io/"
	for name, test := range map[string]struct {
		label, annotation [2]string
		want              string
	}{
		"a label":                 {label: [2]string{"tier", "x"}},
		"a long namespace":        {label: [2]string{"of", "$(NAMESPACE)"}},
		"a name that is too long": {label: [2]string{"of", "x-$(NAMESPACE)"}, want: "for a namespace with a long name"},
		"an annotation":           {annotation: [2]string{"contact", "Jane Doe <jane@example.com>"}},
		"an invalid value":        {label: [2]string{"tier", "a b"}, want: "the value is invalid"},
		"an invalid key":          {label: [2]string{"a b", "x"}, want: "the key is invalid"},
		"a token in a key":        {annotation: [2]string{"$(NAMESPACE)", "x"}, want: "the key contains a token"},
		"a level":                 {label: [2]string{security + "enforce", "restricted"}},
		"an unknown level":        {label: [2]string{security + "enforce", "Restricted"}, want: "is not a Pod Security Standard"},
		"an unknown mode":         {label: [2]string{security + "enforced", "baseline"}, want: "has no label"},
		"a version":               {label: [2]string{security + "warn-version", "v1.36"}},
		"the latest version":      {label: [2]string{security + "warn-version", "latest"}},
		"an unknown version":      {label: [2]string{security + "warn-version", "1.36"}, want: "is not a version"},
		"its own selector":        {label: [2]string{"team", "b"}, want: "the template itself selects"},
		"an annotation like it":   {annotation: [2]string{"team", "b"}},
		"a label of nstpl":        {label: [2]string{"policy.nstpl.dev/policyspace", "b"}, want: "is reserved for nstpl"},
		"a depth":                 {label: [2]string{"a.tree.policy.nstpl.dev/depth", "1"}, want: "is reserved for nstpl"},
		"an opt-out":              {annotation: [2]string{"policy/namespace-template-opt-out", "true"}, want: "is reserved for nstpl"},
		"any key of the proposal": {annotation: [2]string{"policy/replace", "true"}, want: "is reserved for nstpl"},
		"the creator":             {annotation: [2]string{v1alpha1.CreatorAnnotation, "x"}, want: "is reserved for nstpl"},
		"deletion protection":     {annotation: [2]string{"policy.nstpl.dev/deletion-protection", "x"}, want: "is reserved for nstpl"},
		"the name":                {label: [2]string{"kubernetes.io/metadata.name", "x"}, want: "is reserved for Kubernetes"},
		"the record of kubectl":   {annotation: [2]string{"kubectl.kubernetes.io/last-applied-configuration", "x"}, want: "is reserved for Kubernetes"},
		"too large an annotation": {annotation: [2]string{"text", strings.Repeat("x", 65<<10)}, want: "more than the allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labels, annotations := map[string]string{}, map[string]string{}
			if test.label[0] != "" {
				labels[test.label[0]] = test.label[1]
			}
			if test.annotation[0] != "" {
				annotations[test.annotation[0]] = test.annotation[1]
			}
			overlaid := labelling(nil, nil)
			overlaid.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "o", Namespaces: overlaid.Spec.Namespaces,
				NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: labels, Annotations: annotations},
			}}
			for path, template := range map[string]*v1alpha1.NamespaceTemplate{
				"spec.namespaceMetadata": labelling(labels, annotations), "spec.overlays[0].namespaceMetadata": overlaid,
			} {
				problems := Vet(t.Context(), template, nil)
				if test.want == "" {
					require.Empty(t, problems)
					continue
				}
				require.Len(t, problems, 1)
				require.Contains(t, problems[0].Message, test.want)
				require.True(t, strings.HasPrefix(problems[0].Path, path), problems[0].Path)
			}
		})
	}
}

func TestTheCreatorInLabelsOfNamespaces(t *testing.T) {
	t.Parallel()
	template := labelling(map[string]string{"owner": "$(CREATOR)"}, map[string]string{"owner": "$(CREATOR)"})
	problems := Vet(t.Context(), template, nil)
	require.Len(t, problems, 1)
	require.Equal(t, "spec.namespaceMetadata.labels[owner]: is not a valid label value if the creator is "+
		"jane@example.com or a ServiceAccount: name the creator in an annotation", problems[0].Error())
	template.Spec.Overlays = []v1alpha1.Overlay{{NamespaceMetadata: template.Spec.NamespaceMetadata}}
	template.Spec.NamespaceMetadata = nil
	require.Equal(t, "spec.overlays[0].namespaceMetadata.labels[owner]", creatorInLabels(template)[0].Path)
}
