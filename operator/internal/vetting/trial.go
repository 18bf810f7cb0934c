package vetting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	objectschema "nstpl.dev/nstpl/operator/engine/schema"
)

const (
	// maxTrials is the number of dry runs for one request.
	maxTrials = 1024
	// maxConcurrentTrials is how many of them are under way at a time.
	maxConcurrentTrials = 8
	// maxTrialTime is the time after which no more dry runs of a request begin.
	maxTrialTime = 4 * time.Second
	// latestTrial is how long after the beginning of a request the last dry run begins.
	latestTrial = 5 * time.Second
	// maxAnswerTime is how long the API server may then take to answer those that are under way. It waits longer itself
	// for the answer to the request.
	maxAnswerTime = 3 * time.Second
)

// candidate is an object of a template, or of one of its overlays, that is to be tried.
type candidate struct {
	*unstructured.Unstructured
	resource schema.GroupVersionResource
	// path is the path of the object's declaration, or of the overlay that changes the object.
	path string
	// isChanged is false if the stored template has the same object.
	isChanged bool
}

// trial is one dry run of a candidate.
type trial struct {
	candidate
	sample render.Sample
	// index is that of the candidate. isFurther is true for all its trials but the first.
	index     int
	isFurther bool
}

// judgeTrials has the API server apply the objects of the variants in the trial namespace by dry runs, as the operator,
// and returns the problems of the objects that it rejects. kinds are the kinds that the cluster serves and the operator
// may write; objects of other kinds are not tried. Objects with one of the problems in invalid are not tried either.
func (v *review) judgeTrials(
	ctx context.Context, kinds []resolvedKind, variants []render.Variant, invalid []render.Problem,
) ([]error, error) {
	candidates := slices.DeleteFunc(v.candidates(kinds, variants), func(c candidate) bool {
		return slices.ContainsFunc(invalid, func(p render.Problem) bool {
			return isAt(p, c.path) && (p.Object == "" || p.Object == c.name())
		})
	})
	trials := trialsOf(candidates)
	answers, err := v.try(ctx, trials)
	if err != nil {
		return nil, err
	}
	var problems []error
	tried, reported := map[int]bool{}, map[string]bool{}
	for i, t := range trials {
		if answers[i] == nil {
			delete(tried, t.index)
			continue
		}
		tried[t.index] = tried[t.index] || !t.isFurther
		if warning := answers[i].warning; warning != "" {
			v.warnOnce(fmt.Sprintf("%s: %s: %s", t.path, t.name(), warning))
		}
		for _, found := range v.explain(ctx, t, answers[i]) {
			inSample, inOverlay := fmt.Sprint(t.index, found.Path), t.name()+found.Path+found.Message
			if reported[inOverlay] || t.isFurther && reported[inSample] {
				continue
			}
			reported[inSample], reported[inOverlay] = true, true
			switch problem := t.problem(found); {
			case t.sample.Unusual:
				problem.Message += " if the creator is such a user"
				problems = append(problems, problem)
			case t.sample.Long && isTypicallyValid(trials, answers, i, found):
				v.warnAboutLength(t, problem)
			case t.mayBeValid(found, answers[i]):
				v.warnOnce(fmt.Sprintf("%s: tried with the value %s of labels and annotations: the object is missing in "+
					"namespaces with such values", problem.Error(), render.SampleValue))
			default:
				problems = append(problems, problem)
			}
		}
	}
	if untried := len(candidates) - len(tried); untried > 0 {
		v.warn(fmt.Sprintf("%d of %d objects were not tried on the API server, since that would take too long: "+
			"see with kubectl nstpl status whether namespaces are populated", untried, len(candidates)))
	}
	return problems, nil
}

// mayBeValid reports whether a rejected field may be valid for other values of the labels and annotations in it.
// rejected has the problems as the API server tells them. A field of the wrong type is invalid for all values.
func (t trial) mayBeValid(found objectschema.Problem, rejected *answer) bool {
	return render.DependsOnValues(t.Unstructured, found.Path) && (!rejected.bySchema || !rejected.concerns(found))
}

// warnOnce adds a warning unless the request has the same one.
func (v *review) warnOnce(warning string) {
	if !slices.Contains(v.request.Warnings, warning) {
		v.warn(warning)
	}
}

// isTypicallyValid reports whether the API server accepts a field, which it rejects in a namespace with a long name, in
// a namespace with a typical name. The trial with the latter follows that of number long.
func isTypicallyValid(trials []trial, answers []*answer, long int, found objectschema.Problem) bool {
	typical := long + 1
	return typical < len(trials) && trials[typical].index == trials[long].index && answers[typical] != nil &&
		!answers[typical].concerns(found)
}

// warnAboutLength warns about an object that is invalid in namespaces with long names, unless render.Warnings does.
func (v *review) warnAboutLength(t trial, problem render.Problem) {
	if !slices.ContainsFunc(v.request.Warnings, func(w string) bool { return strings.HasPrefix(w, t.path+": ") }) {
		v.warnOnce(problem.Error() + ": tried in a namespace whose name has 63 characters: the object is missing in " +
			"namespaces whose names are too long, and they are not populated")
	}
}

// candidates returns the objects of the variants, each once, those first that the request changes.
func (v *review) candidates(kinds []resolvedKind, variants []render.Variant) []candidate {
	positions := positionsOf(v.updated)
	changed := v.changed(positions)
	seen := map[string]bool{}
	var candidates []candidate
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			i := slices.IndexFunc(kinds, func(k resolvedKind) bool { return k.kind == object.GroupVersionKind() })
			content, err := json.Marshal(object.Object)
			if _, isCopy := render.SourceOf(object); isCopy {
				continue // only namespaces get the content of its source
			}
			if i < 0 || kinds[i].guessed || err != nil || seen[string(content)] {
				continue
			}
			seen[string(content)] = true
			id := render.IDOf(object)
			c := candidate{object, kinds[i].resource, positions[id].path, changed[id]}
			if len(variant.Overlays) > 0 {
				c.path = v.overlayPath(variant.Overlays)
			}
			candidates = append(candidates, c)
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		switch {
		case a.isChanged == b.isChanged:
			return 0
		case a.isChanged:
			return -1
		}
		return 1
	})
	return candidates
}

// isAt reports whether a problem is one of the object, or of the overlay, at a path.
func isAt(problem render.Problem, path string) bool {
	rest, found := strings.CutPrefix(problem.Path, path)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// validVariants returns the variants of a template without the objects and the overlays that have problems. It omits
// those variants that cannot be compiled without them.
func validVariants(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, invalid []render.Problem,
) []render.Variant {
	valid := template.DeepCopy()
	valid.Spec.Templates, valid.Spec.Overlays, valid.Spec.Sources = nil, nil, nil
	isValid := func(format string, i int) bool {
		return !slices.ContainsFunc(invalid, func(p render.Problem) bool { return isAt(p, fmt.Sprintf(format, i)) })
	}
	for i, object := range template.Spec.Templates {
		if isValid("spec.templates[%d]", i) {
			valid.Spec.Templates = append(valid.Spec.Templates, object)
		}
	}
	for i, overlay := range template.Spec.Overlays {
		if isValid("spec.overlays[%d]", i) {
			valid.Spec.Overlays = append(valid.Spec.Overlays, overlay)
		}
	}
	return eachOverlay(ctx, valid)
}

// position is where a template declares an object.
type position struct {
	render.Declaration
	path string
}

// positionsOf returns the positions of a template's objects and of the copies of its sources by their IDs.
func positionsOf(template *v1alpha1.NamespaceTemplate) map[render.ObjectID]position {
	positions := map[render.ObjectID]position{}
	add := func(one v1alpha1.NamespaceTemplateSpec, path string) {
		for _, declaration := range render.AllDeclarations(&v1alpha1.NamespaceTemplate{Spec: one}) {
			positions[declaration.ID()] = position{declaration, path}
		}
	}
	for i := range template.Spec.Sources {
		add(v1alpha1.NamespaceTemplateSpec{Sources: template.Spec.Sources[i : i+1]}, fmt.Sprintf("spec.sources[%d]", i))
	}
	for i := range template.Spec.Templates {
		add(v1alpha1.NamespaceTemplateSpec{Templates: template.Spec.Templates[i : i+1]},
			fmt.Sprintf("spec.templates[%d]", i))
	}
	return positions
}

// overlayPath returns the path of the last of a variant's overlays.
func (v *review) overlayPath(overlays []string) string {
	i := slices.IndexFunc(v.updated.Spec.Overlays, func(o v1alpha1.Overlay) bool {
		return o.Name == overlays[len(overlays)-1]
	})
	return fmt.Sprintf("spec.overlays[%d]", i)
}

// trialsOf returns the dry runs of objects, those of each object together. It omits objects if there are more than
// maxTrials dry runs.
func trialsOf(candidates []candidate) []trial {
	var trials []trial
	for i, c := range candidates {
		samples := render.Samples(c.Unstructured)
		if len(trials)+len(samples) > maxTrials {
			return trials
		}
		for j, sample := range samples {
			trials = append(trials, trial{c, sample, i, j > 0})
		}
	}
	return trials
}

// try makes the dry runs. The answer is nil for one that time did not suffice for. try returns an error if the API
// server could not decide about an object, so that the same request may succeed later.
func (v *review) try(ctx context.Context, trials []trial) ([]*answer, error) {
	deadline := time.Now().Add(maxTrialTime)
	if latest := v.began.Add(latestTrial); latest.Before(deadline) {
		deadline = latest
	}
	limited, cancel := context.WithDeadline(ctx, deadline.Add(maxAnswerTime))
	defer cancel()
	answers, errs := make([]*answer, len(trials)), make([]error, len(trials))
	workqueue.ParallelizeUntil(limited, maxConcurrentTrials, len(trials), func(i int) {
		if time.Now().After(deadline) {
			return
		}
		err := v.dryRun(limited, trials[i])
		for isUnbound(err) && v.isAggregating(limited) {
			err = v.dryRun(limited, trials[i])
		}
		if errors.Is(limited.Err(), context.Canceled) {
			return // because of another object
		}
		answers[i], errs[i] = answerOf(err, trials[i].sample.Unstructured)
		if errs[i] != nil {
			cancel()
		}
	})
	for i, err := range errs {
		if errors.Is(err, errNoTrialNamespace) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("cannot try %s: %w: try again", trials[i].name(), err)
		}
	}
	return answers, ctx.Err()
}

// dryRun applies an object as the operator does when it populates a namespace. Nothing is stored.
func (a *Admission) dryRun(ctx context.Context, t trial) error {
	body, err := json.Marshal(t.sample.Object)
	if err != nil {
		return err
	}
	_, err = a.Metadata.Resource(t.resource).Namespace(v1alpha1.TrialNamespace).Patch(ctx, t.sample.GetName(),
		types.ApplyPatchType, render.EscapeJSON(body), metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, Force: new(true), FieldManager: v1alpha1.FieldManager,
			FieldValidation: metav1.FieldValidationStrict,
		})
	return err
}

// name returns the kind and the name of the object. The name may contain tokens.
func (c candidate) name() string { return render.IDOf(c.Unstructured).String() }

// problem returns a problem of the object as one of the template.
func (c candidate) problem(found objectschema.Problem) render.Problem {
	problem := render.Problem{
		Rule: "server", Path: c.path, Object: c.name(), Message: found.Message, Remedy: found.Remedy,
	}
	switch {
	case found.Path == "":
	case strings.HasPrefix(c.path, "spec.templates"):
		problem.Path += "." + found.Path
	default:
		problem.Message = found.Path + ": " + found.Message
	}
	return problem
}
