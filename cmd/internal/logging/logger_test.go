package logging

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Messages are those of the logger that encodes values at once.
func TestMessagesAreThoseOfZap(t *testing.T) {
	t.Parallel()
	write := func(newLogger func(*zap.Options) logr.Logger) string {
		var out bytes.Buffer
		log := newLogger(&zap.Options{
			DestWriter: &out, StacktraceLevel: zapcore.PanicLevel,
			TimeEncoder: func(_ time.Time, to zapcore.PrimitiveArrayEncoder) { to.AppendString("now") },
		})
		log.Info("alone")
		base := log.WithValues("controller", "namespace", "namespace", klog.KRef("", "team-a"))
		one, other := base.WithValues("reconcileID", types.UID("1")), base.WithValues("reconcileID", types.UID("2"))
		one.Info("first", "key", types.NamespacedName{Namespace: "a", Name: "b"})
		other.WithName("named").Error(errors.New("it failed"), "second", "count", 3)
		one.V(1).Info("not shown")
		base.Info("third")
		return out.String()
	}

	lazy := write(New)
	require.Equal(t, write(func(o *zap.Options) logr.Logger { return zap.New(zap.UseFlagOptions(o)) }), lazy)
	require.Contains(t, lazy, `"msg":"second","controller":"namespace"`)
}

// A value costs little if nothing is logged.
func TestValuesAreNotEncodedBeforeAMessage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := New(&zap.Options{DestWriter: &out})
	var encoded int
	value := marshaler(func() any { encoded++; return "x" })
	added := log.WithValues("key", value)
	require.Zero(t, encoded)
	added.Info("a message")
	require.Equal(t, 1, encoded)
	require.Contains(t, out.String(), `"key":"x"`)
}

type marshaler func() any

// MarshalLog implements logr.Marshaler.
func (m marshaler) MarshalLog() any { return m() }
