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

// view is what a preview shows.
type view struct {
	survey.Namespace
	// live is the namespace as it is, nil if it isn't there; unread says why that is not known.
	live       *corev1.Namespace
	unread     error
	verdicts   []match.Verdict
	unreadable []survey.Unreadable
	// refused are the matching templates that the caller may not use.
	refused []string
	// cluster is nil when none is asked.
	cluster *cluster.Cluster
}

func (p *preview) look(ctx context.Context, name string) (view, error) {
	ns, err := p.namespace(name)
	if err != nil {
		return view{}, err
	}
	v := view{}
	var caller *cluster.Cluster
	if len(p.files) == 0 || p.withCluster {
		if caller, err = p.Connect(); err != nil {
			return view{}, err
		}
	}
	if v.cluster, err = p.reader(ctx, caller); err != nil {
		return view{}, err
	}
	templates, err := p.Templates(ctx, v.cluster, p.files)
	if err != nil {
		return view{}, err
	}
	if v.cluster != nil {
		if v.live, v.unread, err = p.asItIs(ctx, v.cluster, ns); err != nil {
			return view{}, err
		}
	}
	if v.cluster != nil {
		if ns, err = p.place(ctx, v.cluster, ns); err != nil {
			return view{}, err
		}
	}
	index := match.NewIndex(templates...)
	for _, template := range index.All() {
		v.verdicts = append(v.verdicts, match.Explain(template, ns))
	}
	if caller != nil {
		if err := v.ask(ctx, caller, index, ns); err != nil {
			return view{}, err
		}
	}
	return v, v.plan(ctx, index, ns)
}

// place puts the labels on a namespace that the operator would: they say where it is among the policyspaces.
func (p *preview) place(ctx context.Context, c *cluster.Cluster, ns *corev1.Namespace) (*corev1.Namespace, error) {
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

// reader returns as whom to read the cluster: as whom the caller impersonates, if they may read templates, else as
// themselves. It is then still about what the other would get.
func (p *preview) reader(ctx context.Context, caller *cluster.Cluster) (*cluster.Cluster, error) {
	if caller == nil || *p.Config.Impersonate == "" {
		return caller, nil
	}
	if _, err := caller.Templates(ctx); !apierrors.IsForbidden(err) {
		return caller, nil
	}
	p.Note("%s may not list namespacetemplates: the cluster is read as yourself", *p.Config.Impersonate)
	return p.ConnectAsSelf()
}

// ask finds out what depends on who asks: the creator of a namespace that is not there, and which templates they may use.
func (v *view) ask(ctx context.Context, caller *cluster.Cluster, index *match.Index, ns *corev1.Namespace) (err error) {
	if v.live == nil && v.unread == nil && ns.Annotations[v1alpha1.CreatorAnnotation] == "" {
		user, err := caller.Caller(ctx)
		if err != nil {
			return err
		}
		ns.Annotations = map[string]string{v1alpha1.CreatorAnnotation: user.Name}
	}
	v.refused, err = refusedTemplates(ctx, caller, index, ns, v.live)
	return err
}

// plan compares with what is there, as far as there is anything to compare with.
func (v *view) plan(ctx context.Context, index *match.Index, ns *corev1.Namespace) error {
	if v.live != nil {
		found, err := survey.Compare(ctx, v.cluster, index, []*corev1.Namespace{ns}, survey.Scope{})
		if err != nil {
			return err
		}
		v.Namespace, v.unreadable = slices.Collect(found.Namespaces())[0], found.Unreadable
		return nil
	}
	v.Namespace = survey.Declare(render.NewCache(), index, ns)
	v.Changes = populate.NewPlan(v.Declared, index, nothing(v.Declared, v.unread)).Changes
	for i := range v.Changes {
		if v.cluster == nil && v.Changes[i].Action == populate.Create {
			v.Changes[i].Reason = "no cluster was asked what is there"
		}
	}
	return nil
}

// namespace is what the command line says of the namespace.
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

// asItIs completes what the command line says of a namespace by what the cluster knows of it. unread says why the cluster
// doesn't tell.
func (p *preview) asItIs(ctx context.Context, c *cluster.Cluster, ns *corev1.Namespace) (live *corev1.Namespace, unread, err error) {
	live, err = c.Namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.Note("namespace/%s does not exist yet", ns.Name)
		return nil, nil, nil
	case apierrors.IsForbidden(err):
		p.Note("unknown: whether namespace/%s exists, and which labels it has: %v", ns.Name, err)
		return nil, err, nil
	case err != nil:
		return nil, nil, err
	}
	given := ns.DeepCopy()
	live.DeepCopyInto(ns)
	ns.Labels = labels.Merge(ns.Labels, given.Labels)
	ns.Annotations = labels.Merge(ns.Annotations, given.Annotations)
	return live, nil, nil
}

// nothing is what is observed in a namespace that does not exist or, for the reason unread, may not be read.
func nothing(declared populate.Declared, unread error) populate.Observed {
	observed := populate.Observed{}
	if unread != nil {
		observed.Unreadable = map[schema.GroupKind]error{}
		for _, kind := range populate.KindsToObserve(nil, declared) {
			observed.Unreadable[kind] = unread
		}
	}
	return observed
}
