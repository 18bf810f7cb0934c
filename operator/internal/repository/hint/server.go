package hint

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/net/netutil"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The limits of requests.
const (
	// maxBody is the size of GitHub's largest deliveries. Bodies are not kept.
	maxBody = 25 << 20
	// maxHeader is the size of the header. net/http adds 4 KiB.
	maxHeader = 16 << 10
	// maxConnections is how many clients are served at the same time. The others wait.
	maxConnections = 128
	// headerTimeout and requestTimeout are how long a client may take to send the header and the whole request.
	headerTimeout, requestTimeout = 5 * time.Second, 15 * time.Second
	// answerTimeout is how long a client may take for the request and to receive the answer.
	answerTimeout = 20 * time.Second
	// lastAnswers is how long requests may take that have begun when the process ends.
	lastAnswers = 5 * time.Second
)

// Server serves hints.
type Server struct {
	// Address is the host:port at which the server listens.
	Address string
	// Client reads from the cache, Live from the API server.
	Client   client.Client
	Live     client.Reader
	Recorder events.EventRecorder
	// Results counts hints by their result.
	Results *prometheus.CounterVec

	tokens   *tokens
	requests *requests
	// unknown is a random text in place of the token if there is none, so that the same work is done.
	unknown []byte
}

// The results of hints, as label values of the metric.
const (
	resultAccepted = "accepted"
	resultRejected = "rejected"
	resultUnread   = "unread"
)

// NewResults returns a counter for Server.Results that is registered with registerer.
func NewResults(registerer prometheus.Registerer) *prometheus.CounterVec {
	// There is no label with the name of the repository, since clients without a token choose it.
	results := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "nstpl_sync_hints_total", Help: "Number of push hints, by result: accepted, rejected, unread.",
	}, []string{"result"})
	for _, result := range []string{resultAccepted, resultRejected, resultUnread} {
		results.WithLabelValues(result)
	}
	return results
}

// SetupWithManager adds the server to a manager, which is not ready before the server knows all tokens.
func (s *Server) SetupWithManager(mgr ctrl.Manager) error {
	s.init()
	if err := s.tokens.setupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the controller of tokens: %w", err)
	}
	if err := mgr.AddReadyzCheck("hints", s.tokens.areRead); err != nil {
		return err
	}
	return mgr.Add(s)
}

func (s *Server) init() {
	s.tokens = &tokens{cached: s.Client, live: s.Live, recorder: s.Recorder}
	s.requests = newRequests(s.Client)
	s.unknown = []byte(rand.Text())
}

// NeedLeaderElection returns false, because every replica takes hints.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx is done.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for hints: %w", err)
	}
	return s.serve(ctx, listener)
}

// server returns the server with its limits. serve adds that of the number of connections.
func (s *Server) server() *http.Server {
	server := &http.Server{
		Handler: s.handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout,
		ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // clients decide how much is written to it
	}
	server.SetKeepAlivesEnabled(false) // an idle connection would take the place of another client
	return server
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := s.server()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var written sync.WaitGroup
	written.Go(func() { s.requests.run(writing) })
	defer written.Wait()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // the clients that are left are slow
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hint/{name}", s.serveHint)
	return mux
}

func (s *Server) serveHint(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	result, status, text := s.judge(r, name)
	s.Results.WithLabelValues(result).Inc()
	if result == resultAccepted {
		s.requests.add(name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client may be gone
}

// judge verifies a hint. It does the same for every name, whether hints for it can be valid or not.
func (s *Server) judge(r *http.Request, name string) (result string, status int, text string) {
	const rejection = "the signature is missing or wrong, or no PolicyRepository of this name takes hints"
	if !isSigned(r.Header) {
		return resultRejected, http.StatusUnauthorized, rejection
	}
	token := s.tokens.get(name).token
	if len(token) == 0 {
		token = s.unknown
	}
	signature := newSignature(r.Header, token)
	n, err := io.Copy(signature, io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return resultUnread, http.StatusBadRequest, "the body could not be read"
	case n > maxBody:
		return resultUnread, http.StatusRequestEntityTooLarge, "the body has more than 25 MiB"
	case !signature.isValid():
		return resultRejected, http.StatusUnauthorized, rejection
	}
	return resultAccepted, http.StatusAccepted, "the newest commit will be fetched"
}
