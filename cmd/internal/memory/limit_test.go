package memory

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestMemoryLimit(t *testing.T) {
	for name, test := range map[string]struct {
		limit, goLimit string
		want           int64
	}{
		"a container with a limit": {"402653184", "", 402653184 / 10 * 9},
		"no variable":              {"", "", math.MaxInt64},
		"not a number":             {"384Mi", "", math.MaxInt64},
		"Go's own variable":        {"402653184", "300MiB", math.MaxInt64}, // Go has read it before
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MEMORY_LIMIT", test.limit)
			t.Setenv("GOMEMLIMIT", test.goLimit)
			t.Setenv("GOGC", "100") // other tests adapt the collector
			debug.SetMemoryLimit(math.MaxInt64)
			defer debug.SetMemoryLimit(math.MaxInt64)
			Collect(Growth{})
			require.Equal(t, test.want, debug.SetMemoryLimit(-1))
		})
	}
}

func TestDeploymentsSetTheMemoryLimit(t *testing.T) {
	for _, file := range []string{"operator/deployment.yaml", "components/sync/deployment.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../../manifests", file))
		require.NoError(t, err)
		deployment := &appsv1.Deployment{}
		begin := bytes.Index(content, []byte("apiVersion: apps/v1"))
		require.GreaterOrEqual(t, begin, 0, file)
		require.NoError(t, yaml.UnmarshalStrict(content[begin:], deployment))
		container := deployment.Spec.Template.Spec.Containers[0]
		require.NotZero(t, container.Resources.Limits.Memory().Value(), file)
		require.Equal(t, []corev1.EnvVar{{Name: "MEMORY_LIMIT", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"},
		}}}, container.Env, file)
	}
}

func TestSmallHeapsMayGrowMore(t *testing.T) {
	const mebibyte = 1 << 20
	for inUse, want := range map[uint64]int{
		0: 400, mebibyte: 400, 30 * mebibyte: 220, 48 * mebibyte: 100, 64 * mebibyte: 50, 80 * mebibyte: 30,
		96 * mebibyte: 30, 1000 * mebibyte: 30,
	} {
		require.Equal(t, want, Growth{96 * mebibyte, 30}.percentOf(inUse), "%d MiB in use", inUse/mebibyte)
	}
}

func TestCollectorIsAdaptedAfterEachCollection(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	adapt(Growth{96 << 20, 30}, &cycle{})
	for range 3 { // the finalizer is set again each time
		debug.SetGCPercent(77)
		require.Eventually(t, func() bool {
			runtime.GC()
			percent := debug.SetGCPercent(77)
			return percent >= 200 && percent <= 400
		}, 10*time.Second, time.Millisecond)
	}
}
