package population

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/revisions"
)

// History stores the revisions of templates as ControllerRevisions in the operator's namespace.
type History struct {
	// Live reads from the API server.
	Live      client.Reader
	Revisions appsclient.ControllerRevisionInterface
	// Specs reads the contents of revisions.
	Specs *revisions.Reader
	Index *match.Index
}

// revisionOf returns the content of the revision of a template.
func revisionOf(template *v1alpha1.NamespaceTemplate) ([]byte, error) {
	return revisions.Canonical(revisions.DataOf(template.Spec))
}

// revise adds a revision to the status of a template if its spec is not that of the newest revision, or if a rollout is
// to begin again. specs are those of the revisions in the status. It returns those of the revisions that are in it
// then.
func (h *History) revise(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
	specs map[string]*v1alpha1.NamespaceTemplateSpec,
) (map[string]*v1alpha1.NamespaceTemplateSpec, error) {
	accepted := acceptedOf(&v1alpha1.NamespaceTemplate{Status: *status})
	if accepted.Status != metav1.ConditionTrue || template.DeletionTimestamp != nil {
		return specs, nil // the last accepted revision stays in force
	}
	if len(status.Revisions) == 0 || status.Revisions[0].Generation != template.Generation {
		return h.addRevision(ctx, template, status, specs)
	}
	if newest := status.Revisions[0]; mustRestart(template, newest) {
		status.Revisions = restarted(template, status.Revisions)
	}
	return specs, nil
}

// addRevision stores the spec of a template as a revision and begins its rollout, unless only fields that are not
// rolled out have changed.
func (h *History) addRevision(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
	specs map[string]*v1alpha1.NamespaceTemplateSpec,
) (map[string]*v1alpha1.NamespaceTemplateSpec, error) {
	data, err := revisionOf(template)
	if err != nil {
		return nil, err
	}
	var same []string
	for name, spec := range specs {
		known, err := revisionOf(&v1alpha1.NamespaceTemplate{Spec: *spec})
		if err != nil {
			return nil, err
		}
		if bytes.Equal(known, data) {
			same = append(same, name)
		}
	}
	var number int64
	if len(status.Revisions) > 0 {
		newest := status.Revisions[0]
		number = newest.Revision
		if slices.Contains(same, newest.Name) {
			switch {
			case mustRestart(template, newest):
				status.Revisions = restarted(template, status.Revisions)
			case newest.State != v1alpha1.RolloutComplete:
				newest.Waves = revisions.WavesOf(template) // with other pauses, which count from when they began
				status.Revisions = slices.Concat([]v1alpha1.TemplateRevision{newest}, status.Revisions[1:])
			}
			return specs, nil
		}
	}
	number, err = h.storeRevision(ctx, template, number+1, data)
	if err != nil {
		return nil, err
	}
	added := v1alpha1.TemplateRevision{
		Name: revisionName(template.Name, number), Revision: number, Generation: template.Generation,
		Waves: revisions.WavesOf(template), RestartedAt: template.Annotations[v1alpha1.RestartedAtAnnotation],
	}
	status.Revisions = rollout.Begin(status.Revisions, added, same, time.Now())
	specs[added.Name] = &template.Spec
	return specs, nil
}

func revisionName(template string, number int64) string {
	return fmt.Sprintf("%s-%d", template, number)
}

// mustRestart reports whether the rollout of the newest revision has to begin again: because a user asks for it, or
// because its waves select other namespaces.
func mustRestart(template *v1alpha1.NamespaceTemplate, newest v1alpha1.TemplateRevision) bool {
	selectSame := slices.EqualFunc(revisions.WavesOf(template), newest.Waves, func(a, b v1alpha1.Wave) bool {
		return equality.Semantic.DeepEqual(a.Selector, b.Selector)
	})
	return template.Annotations[v1alpha1.RestartedAtAnnotation] != newest.RestartedAt ||
		newest.State != v1alpha1.RolloutComplete && !selectSame
}

// restarted returns the revisions of a template after the rollout of the newest one has begun again. Namespaces that
// have the revision already keep it.
func restarted(
	template *v1alpha1.NamespaceTemplate, inStatus []v1alpha1.TemplateRevision,
) []v1alpha1.TemplateRevision {
	again := v1alpha1.TemplateRevision{
		Name: inStatus[0].Name, Revision: inStatus[0].Revision, Generation: inStatus[0].Generation,
		Waves: revisions.WavesOf(template), RestartedAt: template.Annotations[v1alpha1.RestartedAtAnnotation],
	}
	return rollout.Begin(inStatus, again, []string{again.Name}, time.Now())
}

// specs returns the specs of revisions, by name, as far as they exist: from the template itself, from the index, or
// from the API server.
func (h *History) specs(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, inStatus []v1alpha1.TemplateRevision,
) (map[string]*v1alpha1.NamespaceTemplateSpec, error) {
	specs := map[string]*v1alpha1.NamespaceTemplateSpec{}
	for _, revision := range inStatus {
		// The template's own spec comes first, so that the index does not keep a second copy.
		if revision.Generation == template.Generation {
			specs[revision.Name] = &template.Spec
		}
	}
	known := h.Index.Get(template.Name)
	for _, layer := range h.Index.Layers(template.Name) {
		if known.UID == template.UID && layer.Name != "" && specs[layer.Name] == nil {
			specs[layer.Name] = &layer.Template.Spec
		}
	}
	for _, revision := range inStatus {
		if specs[revision.Name] != nil {
			continue
		}
		spec, err := h.Specs.Spec(ctx, template, revision)
		if err != nil {
			return nil, err
		}
		if spec == nil {
			ctrl.LoggerFrom(ctx).Info("a revision of the template does not exist any more: "+
				"namespaces that have it get an older or the newest one", "template", template.Name, "revision", revision.Name)
			continue
		}
		specs[revision.Name] = spec
	}
	return specs, nil
}

// storeRevision creates the ControllerRevision of a revision, and returns its number: the given one, or the next one
// whose name no other client has taken.
func (h *History) storeRevision(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, number int64, data []byte,
) (int64, error) {
	for ; ; number++ {
		revision := controllerRevision(template, number, data)
		err := h.createRevision(ctx, template, revision)
		if err == nil {
			return number, nil
		}
		if !errors.Is(err, errNameConflict) {
			return 0, fmt.Errorf("store the revision as ControllerRevision %s/%s: %w", v1alpha1.OperatorNamespace,
				revision.Name, err)
		}
	}
}

// errNameConflict is the error for a ControllerRevision whose name another client uses.
var errNameConflict = errors.New("a ControllerRevision of this name exists, and is not of the template")

func controllerRevision(
	template *v1alpha1.NamespaceTemplate, number int64, data []byte,
) *appsv1.ControllerRevision {
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:   revisionName(template.Name, number),
			Labels: map[string]string{v1alpha1.RevisionOfLabel: template.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate",
				Name: template.Name, UID: template.UID, Controller: new(true),
			}},
		},
		Revision: number, Data: runtime.RawExtension{Raw: data},
	}
	if cause := template.Annotations[v1alpha1.ChangeCauseAnnotation]; cause != "" {
		revision.Annotations = map[string]string{v1alpha1.ChangeCauseAnnotation: cause}
	}
	return revision
}

// createRevision creates a ControllerRevision. If the template has one of this name, an operator ended before it stored
// the status: it is used if its content is the same, and replaced otherwise, because content cannot be changed. A
// revision that is in the status is never replaced: the template must be as it is stored.
func (h *History) createRevision(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision *appsv1.ControllerRevision,
) error {
	_, err := h.Revisions.Create(ctx, revision, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := h.Revisions.Get(ctx, revision.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(existing, template) {
		return errNameConflict
	}
	if stored, err := revisions.Canonical(existing.Data); err == nil && bytes.Equal(stored, revision.Data.Raw) {
		return nil
	}
	live := metadataOf("NamespaceTemplate")
	if err := h.Live.Get(ctx, client.ObjectKeyFromObject(template), live); err != nil {
		return err
	}
	if live.UID != template.UID || live.ResourceVersion != template.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.NamespaceTemplates.GroupResource(), template.Name,
			errors.New("the operator's copy of the template is out of date"))
	}
	if err := h.Revisions.Delete(ctx, revision.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &existing.UID}}); err != nil {
		return err
	}
	_, err = h.Revisions.Create(ctx, revision, metav1.CreateOptions{})
	return err
}

func sameNewest(a, b []v1alpha1.TemplateRevision) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return a[0].Name == b[0].Name
}

// pruneRevisions deletes the revisions beyond the limit of a template's history, the newest of them first, until it
// finds one that does not exist. Revisions that namespaces have are kept.
func (h *History) pruneRevisions(ctx context.Context, template *v1alpha1.NamespaceTemplate) error {
	inStatus := template.Status.Revisions
	if len(inStatus) == 0 {
		return nil
	}
	limit := int64(v1alpha1.DefaultRevisionHistoryLimit)
	if template.Spec.RevisionHistoryLimit != nil {
		limit = int64(*template.Spec.RevisionHistoryLimit)
	}
	for number := inStatus[0].Revision - limit - 1; number > 0; number-- {
		name := revisionName(template.Name, number)
		if slices.ContainsFunc(inStatus, func(r v1alpha1.TemplateRevision) bool { return r.Name == name }) {
			continue
		}
		existing, err := h.Revisions.Get(ctx, name, metav1.GetOptions{})
		if err == nil && metav1.IsControlledBy(existing, template) {
			err = h.Revisions.Delete(ctx, name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &existing.UID}})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete revision %s of template %s: %w", name, template.Name, err)
		}
	}
	return nil
}
