// Package logging makes the logger of a program.
package logging

import (
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// New returns a logger that encodes values when it writes a message. That of zap encodes them when they are added to
// the logger. controller-runtime adds some for every reconciliation, and most reconciliations log nothing.
func New(options *zap.Options) logr.Logger {
	return logr.New(lazySink{LogSink: zap.New(zap.UseFlagOptions(options)).GetSink()})
}

// lazySink keeps values until a message is written.
type lazySink struct {
	logr.LogSink
	values []any
}

// Init implements logr.LogSink. The sink below has been initialized.
func (lazySink) Init(logr.RuntimeInfo) {}

// Info implements logr.LogSink.
func (s lazySink) Info(level int, message string, values ...any) {
	s.LogSink.Info(level, message, s.with(values)...)
}

// Error implements logr.LogSink.
func (s lazySink) Error(err error, message string, values ...any) {
	s.LogSink.Error(err, message, s.with(values)...)
}

// WithValues implements logr.LogSink.
func (s lazySink) WithValues(values ...any) logr.LogSink {
	return lazySink{s.LogSink, s.with(values)}
}

// WithName implements logr.LogSink.
func (s lazySink) WithName(name string) logr.LogSink {
	return lazySink{s.LogSink.WithName(name), s.values}
}

func (s lazySink) with(values []any) []any {
	return append(slices.Clip(s.values), values...)
}
