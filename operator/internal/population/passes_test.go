package population

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestPassesUpToANumberEndWhicheverBeginLater(t *testing.T) {
	t.Parallel()
	var p passes
	require.True(t, p.haveEnded(p.begun(), "a"))
	_, endFirst := p.begin()
	selectSecond, endSecond := p.begin()
	number := p.begun()
	_, endLater := p.begin()
	endFirst()
	require.False(t, p.haveEnded(number, "a"), "it may select the template yet")
	selectSecond([]*v1alpha1.NamespaceTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	require.False(t, p.haveEnded(number, "a"))
	require.True(t, p.haveEnded(number, "b"), "a pass delays no other template")
	selectSecond(nil)
	require.True(t, p.haveEnded(number, "a"))
	selectSecond([]*v1alpha1.NamespaceTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	endSecond()
	require.True(t, p.haveEnded(number, "a"), "a pass that began later does not count")
	require.False(t, p.haveEnded(p.begun(), "a"))
	endLater()
	require.True(t, p.haveEnded(p.begun(), "a"))
}
