package sync_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

const hintToken = "whsec_dGVzdC1rZXk="

// delivery is what a Git server sends after a push.
const delivery = `{"ref": "refs/heads/main"}`

// sum returns the HMAC of a text.
func sum(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(text)) // a hash returns no error
	return mac.Sum(nil)
}

func signed(header, token string) map[string]string {
	return map[string]string{header: "sha256=" + hex.EncodeToString(sum(token, delivery))}
}

// followWithHints creates the PolicyRepository, which asks the Git server once a day, and the Secret with the token.
func (x *tree) followWithHints() {
	x.Helper()
	x.setToken(hintToken)
	x.follow(func(r *v1alpha1.PolicyRepository) {
		r.Spec.Interval = &metav1.Duration{Duration: 24 * time.Hour}
		r.Spec.Hint = &v1alpha1.RepositoryHint{SecretRef: v1alpha1.SecretReference{Name: x.name + "-hint"}}
	})
}

func (x *tree) setToken(token string) {
	x.Helper()
	require.NoError(x, cluster.client.Create(x.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: x.name + "-hint"},
		Data:       map[string][]byte{"token": []byte(token)},
	}))
}

// push commits a namespace, and does not tell the cluster.
func (x *tree) push(name string) string {
	x.Helper()
	return x.git.Commit(x, gittest.Commit{
		Files: map[string]string{x.name + "/" + name + "/namespace.yaml": namespaceFile(name)}, Message: name,
	})
}

// hint sends a hint to a process, and returns the status code of the answer.
func (x *tree) hint(
	t require.TestingT, process *operator.Process, name string, headers map[string]string,
) int {
	request, err := http.NewRequestWithContext(x.Context(), http.MethodPost, "http://"+process.Hints+"/hint/"+name,
		strings.NewReader(delivery))
	require.NoError(t, err)
	for key, value := range headers {
		request.Header.Set(key, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

// waitAccepted sends a hint until it is accepted: the token is read when the PolicyRepository appears.
func (x *tree) waitAccepted(process *operator.Process, headers map[string]string) {
	x.Helper()
	x.eventually(func(c *assert.CollectT) {
		assert.Equal(c, http.StatusAccepted, x.hint(c, process, x.name, headers))
	})
}

// requested reads the PolicyRepository, and returns which synchronization was requested last.
func (x *tree) requested(t require.TestingT) string {
	require.NoError(t, cluster.client.Get(x.Context(), client.ObjectKeyFromObject(x.repository), x.repository))
	return x.repository.Annotations[v1alpha1.SyncRequestedAnnotation]
}

// A hint in each of the forms has a new commit applied, long before the interval ends.
func TestHintsStartAFetch(t *testing.T) {
	t.Parallel()
	x := newTree(t, "hint")
	first := x.push("hint-first")
	x.followWithHints()
	x.waitApplied(first)
	content := "1.1700000000." + delivery
	for name, headers := range map[string]map[string]string{
		"github": signed("X-Hub-Signature-256", hintToken), "generic": signed("X-Signature", hintToken),
		"gitlab": {"X-Gitlab-Token": hintToken},
		"gitlab-signed": {
			"webhook-id": "1", "webhook-timestamp": "1700000000",
			"webhook-signature": "v1," + base64.StdEncoding.EncodeToString(sum("test-key", content)),
		},
	} {
		commit := x.push("hint-" + name)
		x.waitAccepted(cluster.sync, headers)
		x.waitApplied(commit)
	}
}

// A client that does not know the token learns nothing and changes nothing.
func TestHintsNeedTheToken(t *testing.T) {
	t.Parallel()
	x, other, empty := newTree(t, "forged"), newTree(t, "hintless"), newTree(t, "tokenless")
	a := x.push("forged-a")
	x.followWithHints()
	x.waitApplied(a)
	b := other.push("hintless-a")
	other.follow()
	other.waitApplied(b)
	third := empty.push("tokenless-a")
	empty.setToken(" \n")
	empty.follow(func(r *v1alpha1.PolicyRepository) {
		r.Spec.Hint = &v1alpha1.RepositoryHint{SecretRef: v1alpha1.SecretReference{Name: "tokenless-hint"}}
	})
	empty.waitApplied(third)
	empty.eventually(func(c *assert.CollectT) { // the process has read the Secret
		out, err := kubectl(t.Context(), "get", "events.events.k8s.io", "--all-namespaces",
			"--output=jsonpath={.items[*].note}")
		assert.NoError(c, err)
		assert.Contains(c, out, "the key token of Secret nstpl-system/tokenless-hint is missing or empty")
	})
	for name, headers := range map[string]map[string]string{
		"none": nil, "another token": signed("X-Hub-Signature-256", "another"), "no token": signed("X-Signature", ""),
		"blank": signed("X-Signature", " \n"), "another GitLab token": {"X-Gitlab-Token": "another"},
	} {
		for _, repository := range []string{"forged", "hintless", "tokenless", "unknown"} {
			require.Equal(t, http.StatusUnauthorized, x.hint(t, cluster.sync, repository, headers), "%s: %s",
				repository, name)
		}
	}
	require.Equal(t, http.StatusUnauthorized, x.hint(t, cluster.sync, "hintless", signed("X-Signature", hintToken)))
	for _, tree := range []*tree{x, other, empty} {
		require.Empty(t, tree.requested(t))
	}
	// The writes of accepted hints are in order, so a later one shows that the others have caused none.
	x.waitAccepted(cluster.sync, signed("X-Signature", hintToken))
	x.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, x.requested(c)) })
	require.Empty(t, other.requested(t))
	require.Empty(t, empty.requested(t))
}

// Many hints at once cause few writes, and the last of them has an effect.
func TestHintsAreLimitedAndNoneIsLost(t *testing.T) {
	t.Parallel()
	x := newTree(t, "flood")
	a := x.push("flood-a")
	x.followWithHints()
	x.waitApplied(a)
	x.waitAccepted(cluster.sync, signed("X-Signature", hintToken))
	x.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, x.requested(c)) })
	requests := x.countRequests()
	begin := time.Now()
	var last time.Time
	for range 100 {
		last = time.Now()
		require.Equal(t, http.StatusAccepted, x.hint(t, cluster.sync, x.name, signed("X-Signature", hintToken)))
	}
	x.eventually(func(c *assert.CollectT) {
		written, err := time.Parse(time.RFC3339Nano, x.requested(c))
		assert.NoError(c, err)
		assert.False(c, written.Before(last), "%s is before %s", written, last)
		assert.Equal(c, x.requested(c), x.repository.Status.RequestedAt, "it is served")
	})
	require.LessOrEqual(t, requests(), 2+int(time.Since(begin)/time.Second))
}

// countRequests returns a function that returns how many different requests there have been since.
func (x *tree) countRequests() func() int {
	x.Helper()
	clients, err := client.NewWithWatch(cluster.RESTConfig(), client.Options{Scheme: cluster.client.Scheme()})
	require.NoError(x, err)
	first := x.requested(x)
	watching, err := clients.Watch(x.Context(), &v1alpha1.PolicyRepositoryList{},
		client.MatchingFields{"metadata.name": x.name}, &client.ListOptions{Raw: &metav1.ListOptions{
			ResourceVersion: x.repository.ResourceVersion,
		}})
	require.NoError(x, err)
	x.Cleanup(watching.Stop)
	return func() int {
		last, seen := x.requested(x), map[string]bool{}
		for value := first; value != last; {
			event := <-watching.ResultChan()
			require.Equal(x, watch.Modified, event.Type)
			repository, ok := event.Object.(*v1alpha1.PolicyRepository)
			require.True(x, ok)
			value = repository.Annotations[v1alpha1.SyncRequestedAnnotation]
			seen[value] = true
		}
		delete(seen, first)
		return len(seen)
	}
}

// Nothing is fetched for a suspended PolicyRepository. What was pushed meanwhile is applied when it is resumed.
func TestHintsWaitForASuspendedRepository(t *testing.T) {
	t.Parallel()
	var fetches atomic.Int32
	x := newTreeBehind(t, "paused", func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fetches.Add(1)
			git.ServeHTTP(w, r)
		})
	})
	a := x.push("paused-a")
	x.followWithHints()
	x.waitApplied(a)
	x.suspend(true)
	x.waitReason("Suspended", a)
	before := fetches.Load()
	require.Positive(t, before)
	b := x.push("paused-b")
	x.waitAccepted(cluster.sync, signed("X-Signature", hintToken))
	x.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, x.requested(c)) })
	// Once nstpl-sync reports the next generation, it has reconciled the hint too.
	mergePatch(t, x.repository, `{"spec": {"interval": "23h"}}`)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, x.repository.Generation, conditionReady(status).ObservedGeneration)
	})
	x.waitReason("Suspended", a)
	require.Equal(t, before, fetches.Load())
	x.mustNotExist(namespace("paused-b"))
	x.suspend(false)
	x.waitApplied(b)
}

// A Git server may send a hint before the commit is visible, and while the cluster fetches an earlier one.
func TestHintsComeEarlyAndDuringAFetch(t *testing.T) {
	t.Parallel()
	var held atomic.Pointer[chan struct{}]
	arrived := make(chan struct{}, 100)
	x := newTreeBehind(t, "early", func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hold := held.Load()
			if hold == nil {
				git.ServeHTTP(w, r)
				return
			}
			answer := httptest.NewRecorder() // of the time before the hold ends
			git.ServeHTTP(answer, r)
			arrived <- struct{}{}
			<-*hold
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		})
	})
	a := x.push("early-a")
	x.followWithHints()
	x.waitApplied(a)

	// The hint comes before the commit.
	x.waitAccepted(cluster.sync, signed("X-Signature", hintToken))
	x.eventually(func(c *assert.CollectT) {
		requested := x.requested(c)
		assert.NotEmpty(c, requested)
		assert.Equal(c, requested, x.repository.Status.RequestedAt)
	})
	b := x.push("early-b")
	x.waitApplied(b)

	// The hint comes while the cluster gets the answer to an earlier one.
	hold := make(chan struct{})
	held.Store(&hold)
	require.Equal(t, http.StatusAccepted, x.hint(t, cluster.sync, x.name, signed("X-Signature", hintToken)))
	<-arrived
	before := x.requested(t)
	late := x.push("early-c")
	require.Equal(t, http.StatusAccepted, x.hint(t, cluster.sync, x.name, signed("X-Signature", hintToken)))
	x.eventually(func(c *assert.CollectT) { assert.NotEqual(c, before, x.requested(c)) })
	held.Store(nil)
	close(hold)
	x.waitApplied(late)
	x.eventually(func(c *assert.CollectT) { // a pass reports the commit before it knows of the later hint
		requested := x.requested(c)
		assert.Equal(c, requested, x.repository.Status.RequestedAt)
	})
}

// A replica that does not lead takes hints, and the leader fetches.
func TestEveryReplicaAcceptsHints(t *testing.T) {
	t.Parallel()
	x := newTree(t, "replica")
	a := x.push("replica-a")
	x.followWithHints()
	x.waitApplied(a)
	leaseOfAnother(t)
	options := cluster.syncOptions
	options.Flags = []string{"--leader-elect", "--dir=" + t.TempDir()}
	replica, err := operator.StartSync(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, replica.Stop()) })
	require.NoError(t, replica.AwaitReady(t.Context()))
	commit := x.push("replica-b")
	require.Equal(t, http.StatusAccepted, x.hint(t, replica, x.name, signed("X-Signature", hintToken)),
		"a replica that is ready knows the tokens")
	x.waitApplied(commit)
	// All replicas report the same about the statuses, and only the leader has measured anything.
	x.waitMetric(replica, 1, "nstpl_sync_ready", `reason="Synced"`)
	x.waitMetric(replica, 1, "nstpl_sync_commit_info", `commit="`+commit+`"`)
	_, found, err := replica.Metric(t.Context(), "nstpl_sync_phase_seconds_count")
	require.NoError(t, err)
	require.False(t, found)
	leads, found, err := replica.Metric(t.Context(), "leader_election_master_status")
	require.NoError(t, err)
	require.True(t, found)
	require.Zero(t, leads)
}

// A token that was replaced or deleted is rejected.
func TestHintsNeedTheTokenThatIsStoredNow(t *testing.T) {
	t.Parallel()
	x := newTree(t, "rotated")
	a := x.push("rotated-a")
	x.followWithHints()
	x.waitApplied(a)
	x.waitAccepted(cluster.sync, signed("X-Signature", hintToken))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "rotated-hint"}}
	change := func(spec string) { // the token is read again
		t.Helper()
		body := `{"spec": ` + spec + `}`
		mergePatch(t, x.repository, body)
	}
	waitRejected := func(token string) {
		t.Helper()
		x.eventually(func(c *assert.CollectT) {
			assert.Equal(c, http.StatusUnauthorized, x.hint(c, cluster.sync, x.name, signed("X-Signature", token)))
		})
	}
	mergePatch(t, secret, `{"stringData": {"token": "another"}}`)
	change(`{"interval": "23h"}`)
	waitRejected(hintToken)
	x.waitAccepted(cluster.sync, signed("X-Signature", "another"))

	change(`{"hint": null}`)
	waitRejected("another")
	change(`{"hint": {"secretRef": {"name": "rotated-hint"}}}`)
	x.waitAccepted(cluster.sync, signed("X-Signature", "another"))

	require.NoError(t, cluster.client.Delete(t.Context(), secret))
	change(`{"interval": "22h"}`)
	waitRejected("another")
	waitRejected("")
}
