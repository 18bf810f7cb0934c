package output

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UTC returns a time for JSON and YAML: in UTC, as the API server writes times. It returns nil for the zero time.
func UTC(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}
