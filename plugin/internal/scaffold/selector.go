package scaffold

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/quantities"
	"nstpl.dev/nstpl/plugin/internal/output"
)

func (s *selector) require(requirements ...metav1.LabelSelectorRequirement) {
	for _, r := range requirements {
		_, has := s.MatchLabels[r.Key]
		if r.Operator != metav1.LabelSelectorOpIn || len(r.Values) != 1 || has {
			s.MatchExpressions = append(s.MatchExpressions, r)
			continue
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[r.Key] = r.Values[0]
	}
}

// requirements returns the requirements of a label selector in a JSON value.
func requirements(value any) ([]metav1.LabelSelectorRequirement, error) {
	fields, _ := value.(map[string]any)
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, &selector, true); err != nil {
		return nil, err
	}
	var found []metav1.LabelSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		found = append(found, in(key, selector.MatchLabels[key]))
	}
	return append(found, selector.MatchExpressions...), nil
}

func in(key string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
}

func exists(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists}
}

func absent(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}
}

// opposites are the operators of requirements that are true exactly if another one is false.
var opposites = map[metav1.LabelSelectorOperator]metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn: metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpNotIn: metav1.LabelSelectorOpIn,
	metav1.LabelSelectorOpExists:       metav1.LabelSelectorOpDoesNotExist,
	metav1.LabelSelectorOpDoesNotExist: metav1.LabelSelectorOpExists,
}

// selectSpace makes a selector select the namespaces in and below a PolicySpace.
func (s *selector) selectSpace(name string) { s.require(exists(name + v1alpha1.DepthLabelSuffix)) }

// space is a PolicySpace in the making.
type space struct {
	*item
	name, parent string
	notes
	// quotas are the limits of the space; the smallest of each resource applies.
	quotas []map[string]any
	// namePattern is that of the names of namespaces that users create, or "".
	namePattern string
	// namespaces are the names of the namespaces in the space.
	namespaces []string
}

// addSpace adds a PolicySpace, with the commands that put its namespaces into it as comments.
func (d *draft) addSpace(s space) {
	doc := document{comments: output.Comments{}}
	spec := map[string]any{}
	if s.parent != "" {
		spec["parent"] = s.parent
	}
	if hard := smallest(s.quotas); len(hard) > 0 {
		spec["quota"] = map[string]any{"hard": hard}
		if len(s.quotas) > 1 {
			s.add("quota: the smallest of the limits of %d quotas", len(s.quotas))
		}
	}
	if s.namePattern != "" {
		spec["selfService"] = map[string]any{"namePattern": s.namePattern}
		s.converted++
	}
	if len(s.namespaces) > 0 {
		s.need(nil, "put %s into policyspace/%s: comments have the commands", output.Count(len(s.namespaces), "namespace"), s.name)
		s.add("After you applied this, put the namespaces into the policy space:")
		for names := range slices.Chunk(slices.Sorted(slices.Values(s.namespaces)), 5) {
			s.add("  kubectl label namespace %s %s=%s", strings.Join(names, " "), v1alpha1.PolicySpaceLabel, s.name)
		}
	}
	s.became("policyspace/"+s.name, 1+len(s.quotas))
	doc.comments[""] = s.notes
	doc.object = newObject(v1alpha1.GroupVersion.String(), "PolicySpace", map[string]any{"name": s.name}, "spec", spec)
	d.documents = append(d.documents, doc)
}

// smallest returns the smallest limit of each resource.
func smallest(quotas []map[string]any) map[string]any {
	hard, known := map[string]any{}, map[string]resource.Quantity{}
	for _, limits := range quotas {
		for name, value := range limits {
			parsed, err := quantities.Parse(fmt.Sprint(value))
			if err != nil {
				continue
			}
			if other, has := known[name]; !has || parsed.Cmp(other) < 0 {
				hard[name], known[name] = parsed.String(), parsed
			}
		}
	}
	return hard
}

// isName reports whether a text can be the name of a namespace or a PolicySpace. Names from files get into commands.
func isName(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }
