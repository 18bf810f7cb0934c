package vetting

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeMetadataTrials has the API server set the labels and annotations that the template declares on the trial
// namespace by dry runs, and returns the problems of those that it rejects. Declarations with one of the problems in
// invalid are not tried.
func (v *review) judgeMetadataTrials(ctx context.Context, invalid []render.Problem) ([]error, error) {
	samples := slices.DeleteFunc(render.MetadataSamples(v.updated), func(sample render.MetadataSample) bool {
		return slices.ContainsFunc(invalid, func(p render.Problem) bool { return isAt(p, sample.Path) })
	})
	limited, cancel := context.WithDeadline(ctx, v.began.Add(latestTrial+maxAnswerTime))
	defer cancel()
	var problems []error
	reported := map[string]bool{}
	for i, sample := range samples {
		if time.Now().After(v.began.Add(latestTrial)) {
			v.warn(fmt.Sprintf("%d of %d labels and annotations of namespaces were not tried on the API server, since that "+
				"would take too long: see with kubectl nstpl status whether namespaces are populated", len(samples)-i,
				len(samples)))
			break
		}
		answer, err := answerOf(v.dryRunMetadata(limited, sample), &unstructured.Unstructured{})
		if err != nil {
			return nil, fmt.Errorf("cannot try %s: %w: try again", sample.Path, err)
		}
		for _, found := range answer.problems {
			problem := render.Problem{Rule: "server", Path: sample.Path, Message: found.Message, Remedy: found.Remedy}
			if found.Path != "" {
				problem.Message = found.Path + ": " + found.Message
			}
			switch text := problem.Error(); {
			case reported[text]:
			case sample.ByUsers:
				v.warnOnce(text + ": tried with sample values of tokens: namespaces with such values are not populated")
			default:
				problems = append(problems, problem)
			}
			reported[problem.Error()] = true
		}
	}
	return problems, nil
}

// dryRunMetadata sets labels and annotations as the operator does on a namespace. Nothing is stored.
func (a *Admission) dryRunMetadata(ctx context.Context, sample render.MetadataSample) error {
	set := map[string]map[string]string{render.Labels: {}, render.Annotations: {}}
	for key, value := range sample.Values {
		set[key.Field][key.Key] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": set})
	if err != nil {
		return err
	}
	namespaces := a.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	_, err = namespaces.Patch(ctx, v1alpha1.TrialNamespace, types.MergePatchType, body, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: v1alpha1.NamespaceFieldManager,
	})
	return err
}
