package selection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/selectors"
)

func setOf(rules ...selectors.Rule) selectors.Set {
	set := selectors.Set{}
	set.Add(rules...)
	return set
}

func TestAdditionIsPendingUntilItsObjectIsStored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after  string
		stored *v1alpha1.NamespaceTemplate
		want   bool
	}{
		"creation, not stored":                     {"", nil, false},
		"creation, stored":                         {"", stored("u", "5"), true},
		"creation, an earlier object of that name": {"", stored("other", "5"), false},
		"update, not stored":                       {"5", stored("u", "5"), false},
		"update, the cache is older":               {"5", stored("u", "4"), false},
		"update, stored, by this or a later write": {"5", stored("u", "10"), true},
		"update, the object is gone":               {"5", nil, false},
		"update, another object of that name":      {"5", stored("other", "10"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			added := addition{UID: "u", After: test.after}
			var object metav1.Object
			if test.stored != nil {
				object = test.stored
			}
			require.Equal(t, test.want, added.stored(object))
		})
	}
}

func stored(uid types.UID, resourceVersion string) *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: resourceVersion}}
}

func TestAdditionExpires(t *testing.T) {
	t.Parallel()
	now := time.Now()
	require.False(t, addition{Time: metav1.NewTime(now.Add(-time.Minute))}.expired(now))
	require.True(t, addition{Time: metav1.NewTime(now.Add(-3 * time.Minute))}.expired(now))
}

func TestRecord(t *testing.T) {
	t.Parallel()
	one, two := selectors.Rule("t: a=b"), selectors.Rule("g:t a=c")
	written := record{
		rules: setOf(one),
		pending: []addition{{
			Kind: "namespacetemplates", Name: "t", UID: "u", After: "1", Rules: []selectors.Rule{two},
			Time: metav1.Unix(1, 0),
		}},
		optOuts: selectors.OptOuts{"users": "\nrobot\n"},
	}
	configMap := &corev1.ConfigMap{}
	changed, err := written.write(configMap)
	require.NoError(t, err)
	require.True(t, changed)
	again := read(configMap)
	require.Equal(t, written.pending[0].Rules, again.pending[0].Rules)
	require.Equal(t, setOf(one, two), again.rules, "what is pending is in force")
	require.Equal(t, written.optOuts, again.optOuts)
	changed, err = again.write(configMap)
	require.NoError(t, err)
	require.False(t, changed)

	configMap.Data[keyPending] = "edited"
	require.Empty(t, read(configMap).pending)
	require.Equal(t, setOf(one, two), read(configMap).rules)
}
