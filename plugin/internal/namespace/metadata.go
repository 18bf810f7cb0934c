package namespace

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// checkName returns an error if the name is not a valid name of a namespace.
func checkName(name string) error {
	if reasons := apivalidation.ValidateNamespaceName(name, false); len(reasons) > 0 {
		return fmt.Errorf("%q is not a valid namespace name: %s", name, strings.Join(reasons, ", "))
	}
	return nil
}

// parseLabels parses the values of --label. Each value is one or several KEY=VALUE, separated by commas.
func parseLabels(pairs []string) (map[string]string, error) {
	var single []string
	for _, pair := range pairs {
		single = append(single, strings.Split(pair, ",")...)
	}
	labels, _, err := cmdutil.ParsePairs(single, "label", false)
	if err != nil {
		return nil, err
	}
	return labels, metav1validation.ValidateLabels(labels, field.NewPath("--label")).ToAggregate()
}

// parseAnnotations parses the values of --annotation. Each value is one KEY=VALUE, since VALUE may contain commas.
func parseAnnotations(pairs []string) (map[string]string, error) {
	annotations, _, err := cmdutil.ParsePairs(pairs, "annotation", false)
	if err != nil {
		return nil, err
	}
	return annotations, apivalidation.ValidateAnnotations(annotations, field.NewPath("--annotation")).ToAggregate()
}
