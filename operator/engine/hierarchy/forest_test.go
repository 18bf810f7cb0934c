package hierarchy_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// at returns a namespace with the label of one policyspace and the depth labels of others, the nearest first.
func at(space string, depths ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{v1alpha1.PolicySpaceLabel: space},
	}}
	for i, above := range depths {
		ns.Labels[hierarchy.DepthLabel(above)] = strconv.Itoa(i + 1)
	}
	return ns
}

func TestUsageIsChargedToCurrentAndFuturePolicyspaces(t *testing.T) {
	t.Parallel()
	spaces := map[string]*v1alpha1.PolicySpace{}
	for name, parent := range map[string]string{
		"root": "", "eng": "root", "engineering": "root", "team": "engineering", "lost": "missing", "round": "circle",
		"circle": "round",
	} {
		spaces[name] = &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
		}
	}
	spaces["eng"].Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "engineering"}, {Name: "science"}}
	spaces["engineering"].Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "eng"}}
	get := func(name string) (*v1alpha1.PolicySpace, error) { return spaces[name], nil }
	system := at("root")
	system.Name = "kube-system"
	for name, test := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"a namespace without a policyspace":     {at(""), nil},
		"a namespace in its policyspace":        {at("root", "root"), []string{"root"}},
		"a new namespace, without depth labels": {at("root"), nil},
		"a namespace whose policyspace shares with others": {
			at("eng", "eng", "root"), []string{"eng", "root", "engineering", "science"},
		},
		"a namespace whose policyspace shares with another": {
			at("engineering", "engineering", "root"), []string{"engineering", "root", "eng"},
		},
		"a namespace that moves": {
			at("team", "team", "eng", "root"), []string{"team", "eng", "root", "engineering", "science"},
		},
		"a namespace that leaves its policyspace": {at("", "root"), []string{"root"}},
		"a policyspace that does not exist":       {at("missing", "missing", "root"), []string{"missing", "root"}},
		"an ancestor that does not exist":         {at("lost", "root"), []string{"root"}},
		"a policyspace that is its own ancestor":  {at("round", "root"), []string{"root"}},
		"a system namespace":                      {system, nil},
	} {
		charged, err := hierarchy.Charged(test.ns, get)
		require.NoError(t, err)
		require.Equal(t, test.want, append([]string(nil), charged...), name)
	}
}

func TestReplacementsPairTheNearestPolicyspacesFirst(t *testing.T) {
	t.Parallel()
	pair := func(names ...string) (all []hierarchy.Replacement) {
		for i := 0; i < len(names); i += 2 {
			all = append(all, hierarchy.Replacement{Old: names[i], New: names[i+1]})
		}
		return all
	}
	for name, test := range map[string]struct {
		before, after []string
		want          []hierarchy.Replacement
	}{
		"no change":       {[]string{"eng", "root"}, []string{"eng", "root"}, nil},
		"nearest renamed": {[]string{"eng", "root"}, []string{"engineering", "root"}, pair("eng", "engineering")},
		"parent renamed": {
			[]string{"team", "eng", "root"}, []string{"team", "engineering", "root"}, pair("eng", "engineering"),
		},
		"root renamed": {[]string{"eng", "root"}, []string{"eng", "base"}, pair("root", "base")},
		"both renamed": {
			[]string{"eng", "root"}, []string{"engineering", "base"}, pair("eng", "engineering", "root", "base"),
		},
		"moved up":   {[]string{"team", "eng", "root"}, []string{"root"}, nil},
		"moved down": {[]string{"root"}, []string{"eng", "root"}, nil},
		"left":       {[]string{"root"}, nil, nil},
	} {
		require.Equal(t, test.want, hierarchy.Replacements(test.before, test.after), name)
	}
}
