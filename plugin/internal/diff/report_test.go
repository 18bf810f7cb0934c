package diff

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

func TestReport(t *testing.T) {
	namespace := func(name string, changes ...populate.Change) survey.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return survey.Namespace{Declared: populate.Declared{Namespace: ns}, Changes: changes}
	}
	change := func(action populate.Action, name string, drifted bool) populate.Change {
		return populate.Change{
			Action: action, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: name, Drifted: drifted,
		}
	}
	same := newReport(slices.Values([]survey.Namespace{
		namespace("a", change(populate.Unchanged, "one", false), change(populate.LeaveAlone, "two", false)),
	}), nil)
	require.Zero(t, same.Different)
	require.True(t, same.isComplete())
	require.Equal(t, 1, same.Namespaces[0].Unchanged)
	require.Empty(t, same.table().Rows)

	different := newReport(slices.Values([]survey.Namespace{
		namespace("a", change(populate.Create, "one", false), change(populate.Configure, "two", true),
			change(populate.Prune, "three", false)),
		namespace("b", change(populate.LeaveAlone, "four", true), change(populate.Unknown, "five", false)),
	}), []error{errors.New("b is forbidden"), errors.New("b is forbidden")})
	require.Equal(t, 4, different.Different)
	require.Equal(t, []string{"b is forbidden"}, different.Unknown)
	require.False(t, different.isComplete())
	var objects []string
	for _, row := range different.table().Rows {
		objects = append(objects, row[0]+" "+row[1]+" "+row[3])
	}
	require.Equal(t, []string{
		"a configmap/one create", "a configmap/two configure", "a configmap/three prune",
		"b configmap/four leave alone", "b configmap/five unknown",
	}, objects)
}
