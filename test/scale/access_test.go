package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

func binding(kind watch.EventType, namespace, space string) watch.Event {
	return watch.Event{Type: kind, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: space + ".viewers", Labels: map[string]string{v1alpha1.TemplateNameLabel: space},
	}}}
}

func TestAccessDuringAMove(t *testing.T) {
	for name, test := range map[string]struct {
		events    []watch.Event
		gaps      int
		completed bool
	}{
		"nothing yet": {nil, 0, false},
		"both":        {[]watch.Event{binding(watch.Added, "a", south)}, 0, false},
		"added, then deleted": {
			[]watch.Event{binding(watch.Added, "a", south), binding(watch.Deleted, "a", north)}, 0, true,
		},
		"deleted, then added": {
			[]watch.Event{binding(watch.Deleted, "a", north), binding(watch.Added, "a", south)}, 1, true,
		},
		"deleted":            {[]watch.Event{binding(watch.Deleted, "a", north)}, 1, false},
		"of a new namespace": {[]watch.Event{binding(watch.Added, "b", south)}, 0, false},
		"changed": {[]watch.Event{
			binding(watch.Added, "a", south), binding(watch.Modified, "a", south), binding(watch.Deleted, "a", north),
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &access{from: north, to: south, left: 1, has: map[string]map[string]bool{"a": {north: true}}}
			moved := 0
			for _, event := range test.events {
				if a.handle(event) {
					moved++
				}
			}
			require.Equal(t, test.gaps, a.gaps)
			require.Equal(t, test.completed, a.left == 0)
			require.Equal(t, test.completed, moved == 1)
		})
	}
}

func TestWritesOfTheOperator(t *testing.T) {
	require.Equal(t, 6.0, operatorWrites(measure.Requests{
		"APPLY rolebindings": 2, "PATCH namespaces/status": 1, "PUT policyspaces/status": 1, "POST events": 1,
		"DELETE rolebindings": 1,
		"POST namespaces":     9, "POST serviceaccounts": 9, "POST configmaps": 9, "PUT resourcequotas/status": 9,
		"POST subjectaccessreviews": 9, "POST selfsubjectaccessreviews": 9, "DRYRUN configmaps": 9, "PUT leases": 9,
		"LIST namespaces": 9,
	}))
}
