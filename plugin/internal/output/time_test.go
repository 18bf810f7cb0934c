package output

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTimesAreInUTC(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("Asia/Tokyo", 9*60*60)
	data, err := json.Marshal(UTC(metav1.Date(2030, 1, 2, 3, 4, 5, 0, tokyo)))
	require.NoError(t, err)
	require.Equal(t, `"2030-01-01T18:04:05Z"`, string(data))
	require.Nil(t, UTC(metav1.Time{}))
}
