package certificates

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var hosts = []string{"webhook.system.svc", "127.0.0.1"}

// client is who verifies, with a bundle that is as old as the API server's may be.
func verifies(t *testing.T, bundle []byte, c content, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	for _, host := range hosts {
		_, err := c.serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
		require.NoError(t, err, "at %s", now)
	}
}

// Through years of rotations, a client that learns of a new bundle late, or of a new certificate, is never in trouble.
func TestRotationNeverFailsAHandshake(t *testing.T) {
	lifetimes := DefaultLifetimes()
	start := time.Now()
	var c content
	require.NoError(t, c.renew(hosts, lifetimes, start))
	known := c.pem()
	var learnt time.Time
	authorities, certificates := map[string]bool{}, map[string]bool{}
	for now := start; now.Before(start.Add(4 * lifetimes.Authority)); now = now.Add(lifetimes.check()) {
		require.NoError(t, c.renew(hosts, lifetimes, now))
		verifies(t, known, c, now)
		if now.Sub(learnt) >= lifetimes.spread()/2 {
			known, learnt = c.pem(), now
		}
		authorities[string(c.authority.Raw)], certificates[string(c.serving.Leaf.Raw)] = true, true
		require.LessOrEqual(t, len(c.bundle), 2)
	}
	require.GreaterOrEqual(t, len(authorities), 5)
	require.GreaterOrEqual(t, len(certificates), 4*6)
}

func TestNothingIsReplacedWithoutNeed(t *testing.T) {
	lifetimes := DefaultLifetimes()
	now := time.Now()
	var c content
	require.NoError(t, c.renew(hosts, lifetimes, now))
	before, err := c.data()
	require.NoError(t, err)
	read, err := read(before)
	require.NoError(t, err)
	require.NoError(t, read.renew(hosts, lifetimes, now.Add(lifetimes.Serving/2)))
	after, err := read.data()
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestWhatIsOfNoUseIsReplaced(t *testing.T) {
	lifetimes := DefaultLifetimes()
	now := time.Now()
	good := func() content {
		var c content
		require.NoError(t, c.renew(hosts, lifetimes, now))
		return c
	}
	foreign := good()
	for name, spoil := range map[string]func(c *content){
		"another authority": func(c *content) {
			c.bundle, c.authority, c.authorityKey = foreign.bundle, foreign.authority, foreign.authorityKey
		},
		"another's certificate": func(c *content) { c.serving = foreign.serving },
		"no certificate":        func(c *content) { c.serving = content{}.serving },
		"nothing":               func(c *content) { *c = content{} },
		"a certificate of the past": func(c *content) {
			c.serving, _ = c.issue(hosts, time.Hour, now.Add(-2*time.Hour))
		},
		"other hosts": func(c *content) {
			c.serving, _ = c.issue([]string{"other"}, lifetimes.Serving, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good()
			spoil(&c)
			require.False(t, c.good(hosts, now))
			require.NoError(t, c.renew(hosts, lifetimes, now))
			verifies(t, c.pem(), c, now)
		})
	}
}

func TestGarbageIsNotRead(t *testing.T) {
	var c content
	require.NoError(t, c.renew(hosts, DefaultLifetimes(), time.Now()))
	for key := range map[string]bool{bundleKey: true, authorityKeyKey: true, servingKey: true, servingKeyKey: true} {
		for _, garbage := range [][]byte{nil, []byte("garbage"), bytes.Repeat([]byte("-"), 100)} {
			data, err := c.data()
			require.NoError(t, err)
			data[key] = garbage
			_, err = read(data)
			require.Error(t, err, "%s: %s", key, garbage)
		}
	}
}

// A replica whose clock is behind makes an authority that is valid by its own clock, instead of certificates that are
// not.
func TestAnAuthorityFromTheFutureIsReplaced(t *testing.T) {
	t.Parallel()
	var c content
	now, lifetimes := time.Now(), DefaultLifetimes()
	hosts := []string{"localhost"}
	require.NoError(t, c.renew(hosts, lifetimes, now))
	before := now.Add(-time.Hour)
	require.False(t, c.good(hosts, before))
	require.NoError(t, c.renew(hosts, lifetimes, before))
	require.True(t, c.good(hosts, before))
	require.True(t, c.good(hosts, now))
	serving := c.serving
	require.NoError(t, c.renew(hosts, lifetimes, before))
	require.Equal(t, serving, c.serving, "nothing is left to do")
}
