package freshness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b    string
		isNewer bool
		newest  string
	}{
		{"7", "5", true, "7"},
		{"10", "9", true, "10"},
		{"100000000000000000000000000", "99999999999999999999999999", true, "100000000000000000000000000"},
		{"5", "5", false, "5"},
		{"5", "", true, "5"},
		{"5", "a hash", true, "5"},
		{"5", "0", true, "5"},
		{"", "", false, ""},
		{"a hash", "another hash", false, "a hash"},
		{"a hash", "", false, "a hash"},
	} {
		require.Equal(t, test.isNewer, Newer(test.a, test.b), test)
		require.False(t, Newer(test.b, test.a), test)
		require.Equal(t, test.isNewer || test.a == test.b, AtLeast(test.a, test.b), test)
		require.Equal(t, test.a == test.b, AtLeast(test.b, test.a), test)
		require.Equal(t, test.newest, Newest(test.a, test.b), test)
	}
	require.Equal(t, "7", Newest("5", "7"))
}

// Whatever versions are, no two are newer than each other, and the order has no circle.
func FuzzNewerIsAnOrder(f *testing.F) {
	f.Add("1", "2", "10")
	f.Add("", "x", "3")
	f.Add("01", "1", "0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		require.False(t, Newer(a, b) && Newer(b, a))
		require.False(t, Newer(a, a))
		if Newer(a, b) && Newer(b, c) {
			require.True(t, Newer(a, c))
		}
	})
}
