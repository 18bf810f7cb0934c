package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// prediction holds what a preview shows: what the operator would do in a namespace, and why.
type prediction struct {
	survey.Namespace
	// live is the namespace in the cluster, or nil. If forbidden is nil, then a nil live means that the namespace does
	// not exist.
	live *corev1.Namespace
	// forbidden is the error of the API server if the caller may not read the namespace, or nil.
	forbidden error
	// verdicts has one verdict for each template.
	verdicts   []match.Verdict
	unreadable []survey.Unreadable
	// forbiddenTemplates are the names of the matching templates that the caller may not use.
	forbiddenTemplates []string
	// denial is the error of a dry run that creates or changes the namespace, or nil.
	denial error
	// cluster reads the cluster. It is nil for a preview without a cluster.
	cluster *cluster.Cluster
}

func (p *preview) predict(ctx context.Context, name string) (prediction, error) {
	ns, err := p.namespace(name)
	if err != nil {
		return prediction{}, err
	}
	var caller, reader *cluster.Cluster
	if p.files.IsEmpty() || p.withCluster {
		if caller, reader, err = p.connect(ctx); err != nil {
			return prediction{}, err
		}
	}
	templates, err := p.TemplateFiles(p.files)
	if err != nil {
		return prediction{}, err
	}
	if reader != nil {
		templates, _, err = cli.WithFiles(ctx, reader, templates)
	}
	if apierrors.IsForbidden(err) && p.files.IsEmpty() {
		return prediction{}, errUnlisted
	}
	if err != nil {
		return prediction{}, err
	}
	index := match.NewIndex(templates...)
	predicted := prediction{cluster: reader}
	if reader != nil {
		if ns, err = p.complete(ctx, &predicted, caller, ns); err != nil {
			return prediction{}, err
		}
		// The API server asks for permission by the stored templates, whichever revision the namespace has.
		predicted.forbiddenTemplates, err = forbiddenTemplates(ctx, caller, index, ns, predicted.live)
		if err != nil {
			return prediction{}, err
		}
		var unread []error
		index, unread = reader.Index(ctx, templates, []*corev1.Namespace{ns})
		for _, err := range unread {
			p.Note("%v", err)
		}
		one := []*corev1.Namespace{ns}
		for _, note := range slices.Concat(survey.Idle(index, one), survey.Delays(index, one, "")) {
			p.Note("%s", note)
		}
	}
	for _, template := range index.All() {
		predicted.verdicts = append(predicted.verdicts, survey.Explain(index, template, ns))
	}
	return predicted, predicted.plan(ctx, index, ns)
}

// connect returns two connections. Caller acts as the user whom the preview is about: the user of the kubeconfig, or
// the user that --as impersonates. Reader reads the cluster. It is the same as caller, unless the impersonated user may
// not list templates: then it acts as the user of the kubeconfig.
func (p *preview) connect(ctx context.Context) (caller, reader *cluster.Cluster, err error) {
	if caller, err = p.Connect(); err != nil || *p.Config.Impersonate == "" {
		return caller, caller, err
	}
	if _, err := caller.Templates(ctx); !apierrors.IsForbidden(err) {
		return caller, caller, nil
	}
	p.Note("%s cannot list namespacetemplates: reading the cluster with your own permissions", *p.Config.Impersonate)
	reader, err = p.ConnectAsSelf()
	return caller, reader, err
}

// namespace returns the namespace that the command line describes.
func (p *preview) namespace(name string) (*corev1.Namespace, error) {
	labels, labelsErr := parseLabels(p.labels)
	annotations, annotationsErr := parseAnnotations(p.annotations)
	if err := errors.Join(checkName(name), labelsErr, annotationsErr); err != nil {
		return nil, err
	}
	if err := p.space.setIn(labels); err != nil {
		return nil, err
	}
	if p.creator != "" {
		annotations[v1alpha1.CreatorAnnotation] = p.creator
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	return ns, nil
}

// complete returns the namespace of the command line with what the cluster adds to it: the metadata of the live
// namespace or, if the namespace does not exist, its creator; and the labels of its policyspaces.
func (p *preview) complete(
	ctx context.Context, predicted *prediction, caller *cluster.Cluster, ns *corev1.Namespace,
) (*corev1.Namespace, error) {
	live, err := predicted.cluster.Namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.Note("namespace/%s does not exist yet", ns.Name)
		ns.CreationTimestamp = metav1.Now()
		if ns.Annotations[v1alpha1.CreatorAnnotation] != "" {
			break // admission may treat another creator differently, but the caller cannot ask for that
		}
		if ns, err = withCreator(ctx, caller, ns); err != nil {
			return nil, err
		}
		ns = p.asAdmitted(ctx, predicted, caller, ns)
	case apierrors.IsForbidden(err):
		p.Note("cannot read namespace/%s, so its existence and its labels are unknown: %v", ns.Name, err)
		predicted.forbidden = err
		ns.CreationTimestamp = metav1.Now()
	case err != nil:
		return nil, err
	default:
		predicted.live = live
		requested := ns
		ns = live.DeepCopy()
		ns.Labels = labels.Merge(live.Labels, requested.Labels)
		ns.Annotations = labels.Merge(live.Annotations, requested.Annotations)
		changes := !maps.Equal(ns.Labels, live.Labels) || !maps.Equal(ns.Annotations, live.Annotations)
		if changes && p.creator == "" {
			predicted.denial = tryChange(ctx, caller, requested)
		}
	}
	return withSpaceLabels(ctx, p.Session, predicted.cluster, ns)
}

// withCreator returns a namespace that does not exist with the caller as its creator.
func withCreator(ctx context.Context, caller *cluster.Cluster, ns *corev1.Namespace) (*corev1.Namespace, error) {
	user, err := caller.Caller(ctx)
	if err != nil {
		return nil, err
	}
	created := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&created.ObjectMeta, v1alpha1.CreatorAnnotation, user.Name)
	return created, nil
}

// asAdmitted returns a namespace that does not exist with the labels that admission sets when the caller creates it,
// and with the annotation that opts it out. It returns the same namespace if the caller may not create it so, and sets
// the error in predicted.
func (p *preview) asAdmitted(
	ctx context.Context, predicted *prediction, caller *cluster.Cluster, ns *corev1.Namespace,
) *corev1.Namespace {
	requested := ns.DeepCopy()
	requested.CreationTimestamp = metav1.Time{}
	delete(requested.Annotations, v1alpha1.CreatorAnnotation)
	created, err := caller.Namespaces.Create(ctx, requested, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		predicted.denial = err
		return ns
	}
	admitted := ns.DeepCopy()
	for _, key := range slices.Sorted(maps.Keys(created.Labels)) {
		value := created.Labels[key]
		if ns.Labels[key] == value || key == corev1.LabelMetadataName || key == v1alpha1.InitializingLabel {
			continue
		}
		p.Note("admission sets the label %s=%s of a new namespace", key, value)
		metav1.SetMetaDataLabel(&admitted.ObjectMeta, key, value)
	}
	if value, ok := created.Annotations[v1alpha1.OptOutAnnotation]; ok {
		metav1.SetMetaDataAnnotation(&admitted.ObjectMeta, v1alpha1.OptOutAnnotation, value)
	}
	return admitted
}

// tryChange returns the error of a dry run that gives a namespace its labels and annotations, as kubectl label does.
func tryChange(ctx context.Context, caller *cluster.Cluster, ns *corev1.Namespace) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{render.Labels: ns.Labels, render.Annotations: ns.Annotations},
	})
	if err != nil {
		return err
	}
	_, err = caller.Namespaces.Patch(ctx, ns.Name, types.MergePatchType, body,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// plan computes the changes in the namespace. It compares the declared objects with those in the namespace, if the
// namespace exists and can be read.
func (v *prediction) plan(ctx context.Context, index *match.Index, ns *corev1.Namespace) error {
	if v.live != nil {
		compared, err := survey.Compare(ctx, v.cluster, index, []*corev1.Namespace{ns}, survey.Scope{})
		if err != nil {
			return err
		}
		for v.Namespace = range compared.Namespaces(ctx) {
		}
		v.unreadable = compared.Unreadable
		return ctx.Err()
	}
	var sources populate.Sources
	if v.cluster != nil {
		sources = survey.Sources(ctx, v.cluster)
	}
	v.Namespace = survey.Declare(render.NewCache(), sources, index, ns)
	v.Changes = populate.NewPlan(v.Declared, index, emptyNamespace(v.Declared, v.forbidden)).Changes
	for i := range v.Changes {
		if v.cluster == nil && v.Changes[i].Action == populate.Create {
			v.Changes[i].Reason = "not compared with a cluster"
		}
	}
	return nil
}

// emptyNamespace returns the observed objects of a namespace that does not exist: none. If forbidden is not nil, the
// user may not read the namespace, and all declared kinds are unreadable.
func emptyNamespace(declared populate.Declared, forbidden error) populate.Observed {
	observed := populate.Observed{}
	if forbidden != nil {
		observed.Unreadable = map[schema.GroupKind]error{}
		for _, kind := range populate.KindsToObserve(nil, declared) {
			observed.Unreadable[kind] = forbidden
		}
	}
	return observed
}
