package controlplane

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildLogSeparatesProgressFromComplaints(t *testing.T) {
	var log buildLog
	write := func(text string) {
		for _, b := range []byte(text) { // lines may arrive in any pieces
			_, err := log.Write([]byte{b})
			require.NoError(t, err)
		}
	}
	require.Equal(t, "0 modules downloaded", log.String())
	write("go: downloading k8s.io/kubernetes v1.36.3\ngo: downloading k8s.io/api v0.36.3\n")
	require.Equal(t, "2 modules downloaded", log.String())
	write("k8s.io/api/core/v1\n# example.org/broken\n./x.go:1:2: undefined: y\nk8s.io/api/apps/v1\n")
	require.Equal(t, "2 packages compiled", log.String())
	require.Equal(t, "# example.org/broken\n./x.go:1:2: undefined: y", log.complaints())
}

func TestBuildLogReports(t *testing.T) {
	for result, want := range map[error]string{
		nil:                  "compiling kubernetes 1.36.3: done, ",
		errors.New("broken"): "compiling kubernetes 1.36.3: failed, ",
	} {
		var log buildLog
		var progress bytes.Buffer
		stop := log.report(&progress, "kubernetes 1.36.3")
		require.Contains(t, progress.String(), "the first time this takes minutes\n")
		stop(result)
		require.Contains(t, progress.String(), want)
	}
}
