// Package measure has what benchmarks share: the bare client to compare with, the work of the API server, and the times
// of events.
package measure
