package selectors

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func template(selector *metav1.LabelSelector, annotations ...string) *v1alpha1.NamespaceTemplate {
	t := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Annotations: map[string]string{}}}
	for _, annotation := range annotations {
		key, value, _ := strings.Cut(annotation, "=")
		t.Annotations[key] = value
	}
	t.Spec.Namespaces.LabelSelector = selector
	return t
}

func labelled(pairs ...string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		selector.MatchLabels[key] = value
	}
	return selector
}

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func expressions(all ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: all}
}

const (
	guarded  = v1alpha1.RequirePermissionAnnotation + "=true"
	disabled = v1alpha1.TemplateApplyAnnotation + "=" + v1alpha1.TemplateApplyDisable
)

func TestOfTemplate(t *testing.T) {
	t.Parallel()
	const depth = "root" + v1alpha1.DepthLabelSuffix
	many := make([]string, maxIndexed+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	deleted := template(labelled())
	deleted.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		want     []Rule
	}{
		"every namespace": {template(labelled()), []Rule{"t:"}},
		"no selector":     {template(nil), nil},
		"an invalid selector": {
			template(expressions(requirement("a", "Near", "b"))), nil,
		},
		"exact labels": {template(labelled("b=2", "a=1")), []Rule{"t: a=1 b=2"}},
		"the namespace's name": {
			template(labelled("a=1", "kubernetes.io/metadata.name=n")),
			[]Rule{"t: a=1 kubernetes.io/metadata.name=n"},
		},
		"one of several values": {
			template(expressions(requirement("a", metav1.LabelSelectorOpIn, "2", "1", "", "1"))),
			[]Rule{"t: a=|1|2"},
		},
		"one of too many values": {
			template(expressions(requirement("a", metav1.LabelSelectorOpIn, many...))),
			[]Rule{Rule("t: a=" + strings.Join(slices.Sorted(slices.Values(many)), "|"))},
		},
		"any value": {
			template(expressions(requirement("a", metav1.LabelSelectorOpExists),
				requirement("b", metav1.LabelSelectorOpDoesNotExist))),
			[]Rule{"t: !b a"},
		},
		"no required label": {
			template(expressions(requirement("a", metav1.LabelSelectorOpNotIn, "x", "y"))),
			[]Rule{"t: a~x|y"},
		},
		"permission required": {template(labelled("a=1"), guarded), []Rule{"g:t a=1"}},
		"permission required but disabled": {
			template(labelled("a=1"), guarded, disabled), []Rule{"d:t a=1"},
		},
		"disabled": {template(labelled("a=1"), disabled), nil},
		"deleted":  {deleted, nil},
		"of a tree": {template(
			expressions(requirement(depth, metav1.LabelSelectorOpExists))), nil},
		"of a tree, permission required": {
			template(labelled(depth+"=0"), guarded), []Rule{Rule("g:t " + depth + "=0")},
		},
		"outside of a tree": {
			template(expressions(requirement(depth, metav1.LabelSelectorOpDoesNotExist))),
			[]Rule{Rule("t: !" + depth)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ElementsMatch(t, test.want, OfTemplate(test.template))
		})
	}
}

func TestOfConfiguration(t *testing.T) {
	t.Parallel()
	configuration := &v1alpha1.NamespaceInitializationConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Initializers: []v1alpha1.Initializer{
			{Name: "network", NamespaceSelector: labelled()},
			{Name: "invalid", NamespaceSelector: expressions(requirement("a", "Near"))},
			{Name: "dns", NamespaceSelector: labelled("a=1")},
		},
	}
	require.Equal(t, []Rule{"i:network o:c:00", "i:dns o:c:02 a=1"}, OfConfiguration(configuration))
	configuration.DeletionTimestamp = new(metav1.Now())
	require.Empty(t, OfConfiguration(configuration))
}
