package cli_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// roundTripper is a function that answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only a cluster that does not answer is given up. What is done in the others may take longer.
func TestAskWaitsForTheFirstAnswerOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: v1
kind: Config
clusters:
- {name: dead, cluster: {server: "https://dead"}}
- {name: slow, cluster: {server: "https://slow"}}
contexts:
- {name: dead, context: {cluster: dead}}
- {name: slow, context: {cluster: slow}}
`), 0o600))
	synctest.Test(t, func(t *testing.T) {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		session := cli.NewSession(streams)
		session.Config.KubeConfig = &file
		session.Config.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "dead" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(`{"gitVersion": "v1.37.2"}`)),
				}, nil
			})
			return config
		}
		began := time.Now()
		replies := cli.Ask(t.Context(), session, cli.Contexts{"dead", "slow"},
			func(ctx context.Context, in cli.Source) (string, error) {
				select {
				case <-time.After(time.Minute):
					return "done in " + in.Context, nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		require.Equal(t, time.Minute, time.Since(began))
		require.EqualError(t, replies[0].Err, "the cluster did not answer within 10s")
		require.NoError(t, replies[1].Err)
		require.Equal(t, "done in slow", replies[1].Value)
	})
}
