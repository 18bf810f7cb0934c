// Package browser opens pages in a headless Chromium or Chrome, so that tests can check what these show.
//
// It speaks the Chrome DevTools Protocol (https://chromedevtools.github.io/devtools-protocol) over a pair of pipes,
// with a JSON message before each zero byte.
package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// find returns the path of a browser: Debian's Chromium, or Chrome.
func find() (string, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		path, err = exec.LookPath("google-chrome")
	}
	return path, err
}

// Lacks returns what this machine lacks to open a page, or an empty string.
func Lacks() string {
	if _, err := find(); err != nil {
		return "a browser is needed, such as that of the Debian package chromium"
	}
	return ""
}

// patience is the longest time that a command of the protocol may take.
const patience = time.Minute

// Browser is a running browser. The end of the test stops it.
type Browser struct {
	t       testing.TB
	in      io.Writer
	mu      sync.Mutex
	last    int
	answers map[int]chan answer
	pages   map[string]*Page
}

// message is a command or what the browser sends: the answer to a command, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	answer
}

type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// New starts a browser. Its profile is empty, and it is deleted with the test.
func New(t testing.TB) *Browser {
	t.Helper()
	program, err := find()
	require.NoError(t, err)
	commands, in, err := os.Pipe()
	require.NoError(t, err)
	out, events, err := os.Pipe()
	require.NoError(t, err)
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(), "--no-first-run", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "about:blank",
	}
	if os.Geteuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // its sandbox refuses to run for root
	}
	cmd := exec.Command(program, args...)
	cmd.ExtraFiles = []*os.File{commands, events} // file descriptors 3 and 4
	require.NoError(t, cmd.Start())
	require.NoError(t, commands.Close())
	require.NoError(t, events.Close())
	b := &Browser{t: t, in: in, answers: map[int]chan answer{}, pages: map[string]*Page{}}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(out) })
	t.Cleanup(func() {
		b.call("", "Browser.close", nil, nil)
		_ = in.Close()
		_ = cmd.Wait() // the exit code of a browser that was told to close says nothing
		reading.Wait()
		_ = out.Close()
	})
	return b
}

// read delivers what the browser sends, until it ends.
func (b *Browser) read(out io.Reader) {
	reader := bufio.NewReader(out)
	for {
		data, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var received message
		if json.Unmarshal(data[:len(data)-1], &received) != nil {
			return
		}
		b.mu.Lock()
		waiting, page := b.answers[received.ID], b.pages[received.SessionID]
		delete(b.answers, received.ID)
		b.mu.Unlock()
		switch {
		case waiting != nil:
			waiting <- received.answer
		case page != nil && received.Method != "":
			page.event(received.Method, received.Params)
		}
	}
}

// call sends a command and waits for its answer. Session is that of a page, or empty.
func (b *Browser) call(session, method string, params, result any) {
	b.t.Helper()
	arguments, err := json.Marshal(params)
	require.NoError(b.t, err)
	if params == nil {
		arguments = []byte("{}")
	}
	waiting := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.answers[id] = waiting
	data, err := json.Marshal(message{ID: id, SessionID: session, Method: method, Params: arguments})
	if err == nil {
		_, err = b.in.Write(append(data, 0))
	}
	b.mu.Unlock()
	require.NoError(b.t, err)
	select {
	case got := <-waiting:
		if got.Error != nil {
			require.FailNow(b.t, method, got.Error.Message)
		}
		if result != nil {
			require.NoError(b.t, json.Unmarshal(got.Result, result))
		}
	case <-time.After(patience):
		require.FailNow(b.t, fmt.Sprintf("the browser does not answer to %s", method))
	}
}
