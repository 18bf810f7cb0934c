package namespace

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// prediction is what a preview shows: what the operator would do in a namespace.
type prediction struct {
	survey.Namespace
	// live is the namespace in the cluster, or nil if it does not exist. If forbidden is not nil, that is unknown, and
	// forbidden is why.
	live      *corev1.Namespace
	forbidden error
	// verdicts hold one verdict for each template.
	verdicts   []match.Verdict
	unreadable []survey.Unreadable
	// refused are the matching templates that the caller may not use.
	refused []string
	// cluster reads the cluster. It is nil for a preview without one.
	cluster *cluster.Cluster
}

func (p *preview) predict(ctx context.Context, name string) (prediction, error) {
	ns, err := p.namespace(name)
	if err != nil {
		return prediction{}, err
	}
	var caller, reader *cluster.Cluster
	if len(p.files) == 0 || p.withCluster {
		if caller, reader, err = p.connect(ctx); err != nil {
			return prediction{}, err
		}
	}
	templates, err := p.Templates(ctx, reader, p.files)
	if err != nil {
		return prediction{}, err
	}
	index := match.NewIndex(templates...)
	predicted := prediction{cluster: reader}
	if reader != nil {
		if ns, err = p.complete(ctx, &predicted, caller, ns); err != nil {
			return prediction{}, err
		}
		if predicted.refused, err = refusedTemplates(ctx, caller, index, ns, predicted.live); err != nil {
			return prediction{}, err
		}
	}
	for _, template := range index.All() {
		predicted.verdicts = append(predicted.verdicts, match.Explain(template, ns))
	}
	return predicted, predicted.plan(ctx, index, ns)
}

// connect returns two clients: caller is the user or the one that --as impersonates, and reader reads the cluster.
// Reader is the same unless that one may not read templates: then it is the user. The preview is about caller all the
// same.
func (p *preview) connect(ctx context.Context) (caller, reader *cluster.Cluster, err error) {
	if caller, err = p.Connect(); err != nil || *p.Config.Impersonate == "" {
		return caller, caller, err
	}
	if _, err := caller.Templates(ctx); !apierrors.IsForbidden(err) {
		return caller, caller, nil
	}
	p.Note("%s may not list namespacetemplates: the cluster is read as yourself", *p.Config.Impersonate)
	reader, err = p.ConnectAsSelf()
	return caller, reader, err
}

// namespace returns the namespace that the command line describes.
func (p *preview) namespace(name string) (*corev1.Namespace, error) {
	labels, err := parseLabels(p.labels)
	if err := errors.Join(checkName(name), err); err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if p.creator != "" {
		ns.Annotations = map[string]string{v1alpha1.CreatorAnnotation: p.creator}
	}
	return ns, nil
}

// complete returns a namespace of the command line with what the cluster knows of it: its live metadata or, if it does
// not exist, its creator, and its place among the policyspaces.
func (p *preview) complete(
	ctx context.Context, predicted *prediction, caller *cluster.Cluster, ns *corev1.Namespace,
) (*corev1.Namespace, error) {
	live, err := predicted.cluster.Namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.Note("namespace/%s does not exist yet", ns.Name)
		if ns, err = withCreator(ctx, caller, ns); err != nil {
			return nil, err
		}
	case apierrors.IsForbidden(err):
		p.Note("unknown: whether namespace/%s exists, and which labels it has: %v", ns.Name, err)
		predicted.forbidden = err
	case err != nil:
		return nil, err
	default:
		predicted.live = live
		given := ns
		ns = live.DeepCopy()
		ns.Labels = labels.Merge(live.Labels, given.Labels)
		ns.Annotations = labels.Merge(live.Annotations, given.Annotations)
	}
	return p.placed(ctx, predicted.cluster, ns)
}

// withCreator returns a namespace that would be created by the caller, unless --creator names another.
func withCreator(ctx context.Context, caller *cluster.Cluster, ns *corev1.Namespace) (*corev1.Namespace, error) {
	if ns.Annotations[v1alpha1.CreatorAnnotation] != "" {
		return ns, nil
	}
	user, err := caller.Caller(ctx)
	if err != nil {
		return nil, err
	}
	created := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&created.ObjectMeta, v1alpha1.CreatorAnnotation, user.Name)
	return created, nil
}

// placed returns the namespace with the labels by which the operator records its place among the policyspaces.
// Templates select by them.
func (p *preview) placed(ctx context.Context, c *cluster.Cluster, ns *corev1.Namespace) (*corev1.Namespace, error) {
	if ns.Labels[v1alpha1.PolicySpaceLabel] == "" {
		return ns, nil
	}
	spaces, err := c.PolicySpaces(ctx)
	if apierrors.IsForbidden(err) {
		p.Note("unknown: what namespace/%s inherits: %v", ns.Name, err)
		return ns, nil
	}
	if err != nil {
		return nil, err
	}
	placed, misplaced := hierarchy.NewForest(spaces).Placed(ns)
	_, isNotAdopted := errors.AsType[*hierarchy.NotAdoptedError](misplaced)
	switch {
	case isNotAdopted:
		p.Note("Warning: %v", misplaced)
	case misplaced != nil:
		p.Note("unknown: what namespace/%s inherits: %v", ns.Name, misplaced)
	}
	return placed, nil
}

// plan compares the declared objects with those in the namespace, if it exists and can be read.
func (v *prediction) plan(ctx context.Context, index *match.Index, ns *corev1.Namespace) error {
	if v.live != nil {
		compared, err := survey.Compare(ctx, v.cluster, index, []*corev1.Namespace{ns}, survey.Scope{})
		if err != nil {
			return err
		}
		v.Namespace, v.unreadable = slices.Collect(compared.Namespaces())[0], compared.Unreadable
		return nil
	}
	v.Namespace = survey.Declare(render.NewCache(), index, ns)
	v.Changes = populate.NewPlan(v.Declared, index, emptyNamespace(v.Declared, v.forbidden)).Changes
	for i := range v.Changes {
		if v.cluster == nil && v.Changes[i].Action == populate.Create {
			v.Changes[i].Reason = "no cluster was asked what is there"
		}
	}
	return nil
}

// emptyNamespace returns what is observed in a namespace that does not exist. If forbidden is not nil, the namespace
// may not be read for that reason, and no kind in it either.
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
