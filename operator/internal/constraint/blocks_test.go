package constraint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/controlplane"
)

// blocksScope has a control plane with the ConfigMap of allocations.
type blocksScope struct {
	t          *testing.T
	client     client.Client
	configMaps corev1client.ConfigMapInterface
}

// stored lists the namespaces in the API server.
type stored struct{ client.Client }

func (s stored) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := s.Client.List(context.Background(), list, client.MatchingLabelsSelector{Selector: selector})
	var namespaces []*corev1.Namespace
	for i := range list.Items {
		namespaces = append(namespaces, &list.Items[i])
	}
	return namespaces, err
}

func (s stored) Get(string) (*corev1.Namespace, error) { return nil, errors.ErrUnsupported }

func newBlocksScope(t *testing.T) *blocksScope {
	t.Helper()
	cluster := controlplane.New(t)
	api, err := client.New(cluster.RESTConfig(), client.Options{})
	require.NoError(t, err)
	set, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	s := &blocksScope{t: t, client: api, configMaps: set.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace)}
	s.create(v1alpha1.OperatorNamespace, nil)
	_, err = s.configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllocationsConfigMap},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return s
}

// cacheOf returns a cache with some constraints.
func cacheOf(sorted ...*v1alpha1.SecurityContextConstraints) *constraintCache {
	read := func(context.Context, client.Reader, ...client.ListOption) (constraints, error) {
		return constraints{sorted: sorted}, nil
	}
	return &constraintCache{webhook.NewRevisionCache(nil, nil, read)}
}

// leader returns the Blocks of a leader that has just started.
func (s *blocksScope) leader(ids string) *Blocks {
	pool, err := scc.NewPool(ids, "s0:/2", 1)
	require.NoError(s.t, err)
	return &Blocks{
		Namespaces: stored{s.client}, ConfigMaps: s.configMaps, Pool: pool, Exempt: []string{"kube-system"},
		Constraints: cacheOf(&v1alpha1.SecurityContextConstraints{}),
	}
}

func (s *blocksScope) create(name string, annotations map[string]string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	require.NoError(s.t, s.client.Create(s.t.Context(), ns))
	return ns
}

// However often one asks, no two namespaces are given the same block, not even by another leader.
func TestABlockIsGivenToOneNamespace(t *testing.T) {
	t.Parallel()
	s := newBlocksScope(t)
	owners := map[string]types.UID{}
	for round := range 2 {
		leader := s.leader("1000000-1999999/10")
		var mu sync.Mutex
		var group sync.WaitGroup
		for i := range 2 * reservedAtOnce {
			for range 2 {
				group.Go(func() {
					ns := namespace(fmt.Sprintf("a-%d-%d", round, i), 1, nil)
					given, err := leader.For(t.Context(), ns)
					mu.Lock()
					defer mu.Unlock()
					if err != nil || len(given) != 3 {
						t.Errorf("%v: %v", given, err)
						return
					}
					for _, key := range []string{v1alpha1.UIDRangeAnnotation, v1alpha1.MCSAnnotation} {
						if owner, isOwned := owners[given[key]]; isOwned && owner != ns.UID {
							t.Errorf("%s of %s and %s", given[key], owner, ns.UID)
						}
						owners[given[key]] = ns.UID
					}
				})
			}
		}
		group.Wait()
	}
	require.Len(t, owners, 2*2*2*reservedAtOnce)
}

func TestNamespacesThatAreGivenNoBlock(t *testing.T) {
	t.Parallel()
	withoutConstraints := &Blocks{Constraints: cacheOf()}
	others := &Blocks{
		Exempt:      []string{"kube-system"},
		Constraints: cacheOf(&v1alpha1.SecurityContextConstraints{}),
	}
	for name, test := range map[string]struct {
		blocks *Blocks
		ns     *corev1.Namespace
	}{
		"without constraints": {withoutConstraints, namespace("a", 1, nil)},
		"an exempt one":       {others, namespace("kube-system", 1, nil)},
		"one with user IDs":   {others, namespace("a", 1, map[string]string{v1alpha1.UIDRangeAnnotation: "1/1"})},
		"one with a level":    {others, namespace("a", 1, map[string]string{v1alpha1.MCSAnnotation: "s0:c1,c0"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given, err := test.blocks.For(t.Context(), test.ns)
			require.NoError(t, err)
			require.Nil(t, given)
		})
	}
}

// A namespace may come with user IDs that are in reserve, for example from a backup.
func TestABlockInReserveThatANamespaceHasIsNotGiven(t *testing.T) {
	t.Parallel()
	s := newBlocksScope(t)
	leader := s.leader("1000-9999/10")
	first := s.create("first", nil)
	given, err := leader.For(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, block(0), given)
	require.Equal(t, block(1), leader.reserve[0])

	s.create("restored", block(1))
	namespaces, err := leader.Namespaces.List(labels.Everything())
	require.NoError(t, err)
	allocations, err := leader.Complete(t.Context(), namespaces)
	require.NoError(t, err)
	for _, allocation := range allocations {
		require.NotEqual(t, block(1), allocation.Annotations)
	}
	second := namespace("second", 2, nil)
	given, err = leader.For(t.Context(), second)
	require.NoError(t, err)
	require.NotEqual(t, block(1), given)
	again, err := leader.For(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, block(0), again, "a comparison does not change what is given")
}

func TestAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := newBlocksScope(t)
	leader := s.leader("1000-1039/10")
	for i := range 4 {
		_, err := leader.For(t.Context(), s.create(fmt.Sprint("a", i), nil))
		require.NoError(t, err)
	}
	_, isKnown := leader.isExhausted()
	require.False(t, isKnown, "other namespaces may lack user IDs")
	expect := func(want bool, message ...any) {
		t.Helper()
		isExhausted, isKnown := leader.isExhausted()
		require.True(t, isKnown)
		require.Equal(t, want, isExhausted, message...)
	}
	changes := 0
	leader.exhaustion.Listen(func() { changes++ })
	last := s.create("b", nil)
	_, err := leader.For(t.Context(), last)
	require.ErrorIs(t, err, scc.ErrPoolExhausted)
	expect(true)
	namespaces, err := leader.Namespaces.List(labels.Everything())
	require.NoError(t, err)
	_, err = leader.Complete(t.Context(), namespaces)
	require.ErrorIs(t, err, scc.ErrPoolExhausted)
	expect(true)
	leader.forget(last.UID)
	for _, ns := range namespaces {
		leader.forget(ns.UID)
	}
	expect(false, "the namespaces that lack user IDs are gone")
	require.Equal(t, 4, changes, "at first, when the pool was exhausted, after the comparison, and at the end")
}

// Namespaces may be created, or lose what they were given, while there are no constraints. Whether all have user IDs is
// unknown until all are compared again.
func TestNamespacesAreComparedAgainAfterTheLastConstraintIsDeleted(t *testing.T) {
	t.Parallel()
	pool, err := scc.NewPool("1000-1999/10", "s0:/2", 1)
	require.NoError(t, err)
	some := &v1alpha1.SecurityContextConstraints{}
	for name, happens := range map[string]func(*Blocks) error{
		"a namespace is created": func(leader *Blocks) error {
			_, err := leader.For(t.Context(), namespace("a", 1, nil))
			return err
		},
		"a namespace loses its annotations": func(leader *Blocks) error {
			_, err := (&Allocations{Blocks: leader}).Reconcile(t.Context(), reconcile.Request{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leader := &Blocks{Pool: pool, Constraints: cacheOf(some)}
			compare := func() {
				_, err := leader.Complete(t.Context(), nil)
				require.NoError(t, err)
				_, isKnown := leader.isExhausted()
				require.True(t, isKnown)
			}
			compare()
			leader.Constraints = cacheOf()
			require.NoError(t, happens(leader))
			leader.Constraints = cacheOf(some)
			_, isKnown := leader.isExhausted()
			require.False(t, isKnown)
			notified := 0
			leader.exhaustion.Listen(func() { notified++ })
			compare()
			require.Equal(t, 2, notified, "at first, and after the comparison")
		})
	}
}

// lateLeader writes to the ConfigMap between a read and a write of another leader.
type lateLeader struct {
	corev1client.ConfigMapInterface
	write func()
}

func (l *lateLeader) Update(
	ctx context.Context, record *corev1.ConfigMap, options metav1.UpdateOptions,
) (*corev1.ConfigMap, error) {
	l.write()
	return l.ConfigMapInterface.Update(ctx, record, options)
}

// Blocks that could not be written down are not given.
func TestNoBlockIsGivenThatIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	s := newBlocksScope(t)
	earlier, leader := s.leader("1000-9999/10"), s.leader("1000-9999/10")
	theirs, ours := namespace("theirs", 1, nil), namespace("ours", 1, nil)
	var given map[string]string
	var once sync.Once
	leader.ConfigMaps = &lateLeader{s.configMaps, func() {
		once.Do(func() {
			var err error
			given, err = earlier.For(t.Context(), theirs)
			require.NoError(t, err)
		})
	}}
	_, err := leader.For(t.Context(), ours)
	require.True(t, apierrors.IsConflict(err), err)
	second, err := leader.For(t.Context(), ours)
	require.NoError(t, err)
	require.NotEqual(t, given, second)
}

func TestHoldersDoNotChangeTheCache(t *testing.T) {
	t.Parallel()
	cached := namespace("a", 1, map[string]string{"x": "y"})
	holders, _ := holdersOf([]*corev1.Namespace{cached}, nil, map[types.UID]map[string]string{"a": block(0)})
	require.Contains(t, holders[0].Annotations, v1alpha1.UIDRangeAnnotation)
	require.Equal(t, map[string]string{"x": "y"}, cached.Annotations)
}

func TestNextBlock(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"7": 7, "0": 0, "-1": 0, "": 0, "seven": 0} {
		require.Equal(t, want, nextBlock(map[string]string{nextBlockKey: value}), value)
	}
	require.Equal(t, 0, nextBlock(nil))
}
