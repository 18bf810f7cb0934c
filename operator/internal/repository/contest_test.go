package repository

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/backoff"
)

// labelled returns a Namespace with a label.
func labelled(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"team": value}},
	}}
}

func TestAnObjectThatAdmissionAlteredWasNotFoughtOver(t *testing.T) {
	t.Parallel()
	declared := labelled("declared")
	for name, last := range map[string]outcome{
		"applied as declared":         {stored: []stored{{declared, declared}}},
		"made as declared by another": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := new(Repositories).of(repositoryOf("repository"))
			now, tree := time.Unix(0, 0), &vetted{declared: []*unstructured.Unstructured{declared}}
			settle := func(o outcome) []contested {
				o.differed = map[declaration]bool{}
				for _, one := range o.stored {
					o.differed[declarationOf(one.declared)] = true
				}
				known.settle(&o, tree, nil, now)
				return o.contested
			}
			var contested []contested
			for range 20 {
				contested = settle(outcome{stored: []stored{{declared, labelled("altered")}}})
			}
			require.Len(t, contested, 1)
			require.Contains(t, contested[0].why, "the API server stored another value of metadata.labels")
			require.NotZero(t, known.fights.Wait(struct{}{}, declarationOf(declared), backoff.LastPause, now))

			require.Empty(t, settle(last))
			require.Zero(t, known.fights.Wait(struct{}{}, declarationOf(declared), backoff.LastPause, now))
			require.Empty(t, settle(outcome{}))
			for range 20 {
				contested = settle(outcome{stored: []stored{{declared, declared}}})
			}
			require.Len(t, contested, 1, "another client undoes what is applied as declared")
			require.Contains(t, contested[0].why, "another client changes it again and again")
		})
	}
}

// A namespace's labels may protect it from its users, so a fight that they begin does not slow its repair down.
func TestOnlyANamespaceIsRepairedSoonInAFight(t *testing.T) {
	t.Parallel()
	template := labelled("declared")
	template.SetAPIVersion(v1alpha1.GroupVersion.String())
	template.SetKind("NamespaceTemplate")
	for name, test := range map[string]struct {
		declared *unstructured.Unstructured
		want     time.Duration
	}{
		"a namespace": {labelled("declared"), time.Second},
		"a template":  {template, backoff.LastPause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := new(Repositories).of(repositoryOf("repository"))
			now := time.Unix(0, 0)
			for range 40 {
				known.fights.Corrected(struct{}{}, declarationOf(test.declared), "", now)
			}
			postponed := func(now time.Time) outcome {
				o := outcome{Plan: inventory.Plan{Applies: []inventory.Apply{{Declared: test.declared}}}}
				known.postpone(&o, now)
				return o
			}
			o := postponed(now)
			require.Empty(t, o.Applies)
			require.Equal(t, test.want, o.due)
			require.Len(t, postponed(now.Add(test.want)).Applies, 1)
		})
	}
}
