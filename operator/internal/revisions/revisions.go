// Package revisions reads the revisions of templates that are in force. Namespaces have earlier revisions of a
// template while a change of it is rolled out, which may be paused or stopped for weeks. So code that asks what a
// template selects, declares, sets or renders asks InForce, and never the stored spec alone.
//
// The operator writes a revision into the status of a template before any namespace gets it, by a write that is denied
// if the template has changed meanwhile. So the status of each stored version of a template names all revisions that
// namespaces may have, besides the stored spec itself.
package revisions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// maxKnown is the number of specs that a Reader keeps, and keepFor how long. Several packages ask for the same ones.
const (
	maxKnown = 64
	keepFor  = time.Hour
)

// Data is the content of a ControllerRevision: what a rollout distributes.
type Data struct {
	Spec v1alpha1.NamespaceTemplateSpec `json:"spec"`
}

// DataOf returns the content of the revision of a spec. How a revision is rolled out is not part of it.
func DataOf(spec v1alpha1.NamespaceTemplateSpec) Data {
	spec.Rollout, spec.RevisionHistoryLimit = nil, nil
	return Data{spec}
}

// Reader reads revisions. It is safe for concurrent use.
type Reader struct {
	stored appsclient.ControllerRevisionInterface
	// known has the specs that were read, by ownName.
	known *utilcache.LRUExpireCache
}

// ownName is the name of a ControllerRevision that a template controls. What else a status says of it, such as the
// generation, may be forged: a review that is sent to the webhooks contains a status, too.
type ownName struct {
	template types.UID
	name     string
}

// NewReader returns a Reader of ControllerRevisions with a client for the operator's namespace.
func NewReader(stored appsclient.ControllerRevisionInterface) *Reader {
	return &Reader{stored: stored, known: utilcache.NewLRUExpireCache(maxKnown)}
}

// InForce returns a template as it is stored, and with the spec of each other revision that namespaces may have: those
// in its status. All have the stored metadata. The caller must not change them. It leaves out revisions that populate
// the same as one before.
func (r *Reader) InForce(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) ([]*v1alpha1.NamespaceTemplate, error) {
	all := []*v1alpha1.NamespaceTemplate{template}
	for _, revision := range template.Status.Revisions {
		if revision.Generation == template.Generation {
			continue
		}
		spec, err := r.Spec(ctx, template, revision)
		if err != nil {
			return nil, err
		}
		if spec == nil {
			continue
		}
		earlier := *template
		earlier.Spec, earlier.Generation = *spec, revision.Generation
		if len(revision.Waves) > 0 {
			earlier.Spec.Rollout = &v1alpha1.Rollout{Waves: revision.Waves}
		}
		isKnown := func(other *v1alpha1.NamespaceTemplate) bool {
			return equality.Semantic.DeepEqual(WavesOf(other), WavesOf(&earlier)) &&
				PopulateSame(other.Spec, earlier.Spec)
		}
		if !slices.ContainsFunc(all, isKnown) {
			all = append(all, &earlier)
		}
	}
	return all, nil
}

// WavesOf returns the waves in which a template is rolled out.
func WavesOf(template *v1alpha1.NamespaceTemplate) []v1alpha1.Wave {
	if template.Spec.Rollout == nil {
		return nil
	}
	return template.Spec.Rollout.Waves
}

// Spec returns the spec of a revision in the status of a template, or nil if the ControllerRevision does not exist or
// is not controlled by the template: namespaces then do not get it any more.
func (r *Reader) Spec(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision v1alpha1.TemplateRevision,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	of := ownName{template.UID, revision.Name}
	if known, ok := r.known.Get(of); ok {
		return known.(*v1alpha1.NamespaceTemplateSpec), nil
	}
	stored, err := r.stored.Get(ctx, revision.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(stored, template) {
		return nil, nil
	}
	data := &Data{}
	if err == nil {
		err = json.Unmarshal(stored.Data.Raw, data)
	}
	if err != nil {
		return nil, fmt.Errorf("read revision %s of template %s: %w", revision.Name, template.Name, err)
	}
	r.known.Add(of, &data.Spec, keepFor)
	return &data.Spec, nil
}

// Names returns the names of the revisions of a template that namespaces may have.
func Names(template *v1alpha1.NamespaceTemplate) []string {
	names := make([]string, 0, len(template.Status.Revisions))
	for _, revision := range template.Status.Revisions {
		names = append(names, revision.Name)
	}
	return names
}

// PopulateSame reports whether two specs populate the same. The keys of objects in a stored revision are sorted.
func PopulateSame(a, b v1alpha1.NamespaceTemplateSpec) bool {
	x, errX := Canonical(DataOf(a))
	y, errY := Canonical(DataOf(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Canonical returns the content of a revision as JSON with the keys of all objects sorted, also of those in raw JSON,
// and without the nulls that mean the same as a missing field. The value is Data, or JSON of it.
func Canonical(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var content any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	if fields, ok := content.(map[string]any); ok {
		objects, _, _ := unstructured.NestedFieldNoCopy(fields, "spec", "templates")
		declared, _ := objects.([]any)
		for _, object := range declared {
			if object, ok := object.(map[string]any); ok {
				render.DropNulls(object)
			}
		}
	}
	return json.Marshal(content)
}
