package command

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

func TestParseLabels(t *testing.T) {
	labels, err := parseLabels([]string{"a=1,b=", "c.d/e=x"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "", "c.d/e": "x"}, labels)
	for _, bad := range []string{"a", "=1", "a=b c", "a/b/c=1", ""} {
		_, err := parseLabels([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestParseAnnotations(t *testing.T) {
	annotations, err := parseAnnotations([]string{"a=x, y=z"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "x, y=z"}, annotations)
	for _, bad := range []string{"a", "a/b/c=1", "a=" + strings.Repeat("x", 300<<10)} {
		_, err := parseAnnotations([]string{bad})
		require.Error(t, err)
	}
}

func TestReport(t *testing.T) {
	namespace := func(name string, changes ...populate.Change) survey.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return survey.Namespace{Declared: populate.Declared{Namespace: ns}, Changes: changes}
	}
	change := func(action populate.Action, name string, drifted bool) populate.Change {
		return populate.Change{Action: action, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: name, Drifted: drifted}
	}
	same := newReport(slices.Values([]survey.Namespace{
		namespace("a", change(populate.Unchanged, "one", false), change(populate.LeaveAlone, "two", false)),
	}), nil)
	require.Zero(t, same.Different)
	require.True(t, same.complete())
	require.Equal(t, 1, same.Namespaces[0].Unchanged)
	require.Empty(t, same.table().Rows)

	different := newReport(slices.Values([]survey.Namespace{
		namespace("a", change(populate.Create, "one", false), change(populate.Configure, "two", true), change(populate.Prune, "three", false)),
		namespace("b", change(populate.LeaveAlone, "four", true), change(populate.Unknown, "five", false)),
	}), []error{errors.New("b is forbidden"), errors.New("b is forbidden")})
	require.Equal(t, 4, different.Different)
	require.Equal(t, []string{"b is forbidden"}, different.Unknown)
	require.False(t, different.complete())
	var objects []string
	for _, row := range different.table().Rows {
		objects = append(objects, row[0]+" "+row[1]+" "+row[3])
	}
	require.Equal(t, []string{
		"a configmap/one create", "a configmap/two configure", "a configmap/three prune",
		"b configmap/four leave alone", "b configmap/five unknown",
	}, objects)
}

func TestStandingOf(t *testing.T) {
	index := match.NewIndex(&v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Spec: v1alpha1.NamespaceTemplateSpec{Namespaces: v1alpha1.NamespaceSelector{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}},
		}},
	})
	matching := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}}
	out := *matching.DeepCopy()
	out.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
	condition := corev1.NamespaceCondition{Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: "ObjectsFailed", Message: "m"}
	tests := map[string]struct {
		ns                *corev1.Namespace
		populated, reason string
		templates         []string
	}{
		"not reported": {&corev1.Namespace{ObjectMeta: matching}, "Unknown", "NotReported", []string{"t"}},
		"reported": {&corev1.Namespace{ObjectMeta: matching, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{condition}}},
			"False", "ObjectsFailed", []string{"t"}},
		"opted out":   {&corev1.Namespace{ObjectMeta: out}, "<none>", "OptedOut", []string{}},
		"excluded":    {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, "<none>", "Excluded", []string{}},
		"no template": {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, "<none>", "NoTemplate", []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := standingOf(index, test.ns)
			require.Equal(t, test.populated, got.Populated)
			require.Equal(t, test.reason, got.Reason)
			require.Equal(t, test.templates, got.Templates)
		})
	}
}

func TestFileName(t *testing.T) {
	role := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	require.Equal(t, "rbac.authorization.k8s.io.v1.Role.team-a.system_reader", fileName(role, "team-a", "system:reader"))
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	require.Equal(t, "v1.Secret.team-a..._.._etc_passwd", fileName(secret, "team-a", "../../etc/passwd"))
	long := strings.Repeat("x", 253)
	require.Less(t, len(fileName(secret, "team-a", long+"a")), 255)
	require.NotEqual(t, fileName(secret, "team-a", long+"a"), fileName(secret, "team-a", long+"b"))
}
