package measure

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Figure formats a number with its significant digits.
func Figure(number float64) string {
	if number == math.Trunc(number) || number >= 100 {
		return strconv.FormatFloat(number, 'f', 0, 64)
	}
	return strconv.FormatFloat(number, 'f', 2, 64)
}

// Percentile returns the smallest of the values that is at least as large as p percent of them, or zero if there are no
// values.
func Percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}
