package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image contains only the program. So where no certificates of authorities are installed, the program trusts those
// that are compiled into it, and repositories at public servers need no Secret with a certificate.
func TestPublicAuthoritiesAreTrustedWithoutInstalledCertificates(t *testing.T) {
	t.Parallel()
	const missing = "/missing"
	if os.Getenv("SSL_CERT_FILE") != missing { // a process reads these variables only when it starts
		process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		process.Env = append(os.Environ(), "SSL_CERT_FILE="+missing, "SSL_CERT_DIR="+missing)
		output, err := process.CombinedOutput()
		require.NoError(t, err, "%s", output)
		return
	}
	roots, err := x509.SystemCertPool()
	require.NoError(t, err)
	require.False(t, roots.Equal(x509.NewCertPool()))
}
