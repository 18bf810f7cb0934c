package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// buildLog parses the output of `go build -v`: a line for each module that it downloads and each package that it
// compiles, and errors.
type buildLog struct {
	mu         sync.Mutex
	unfinished []byte // the last, incomplete line
	downloaded int
	compiled   int
	other      []string
}

func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfinished = append(l.unfinished, p...)
	for {
		line, rest, found := bytes.Cut(l.unfinished, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.unfinished = rest
		switch text := string(line); {
		case strings.HasPrefix(text, "go: downloading "):
			l.downloaded++
		case !strings.ContainsAny(text, " \t"):
			l.compiled++
		default:
			l.other = append(l.other, text)
		}
	}
}

func (l *buildLog) complaints() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.other, "\n")
}

func (l *buildLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compiled == 0 {
		return fmt.Sprintf("%d modules downloaded", l.downloaded)
	}
	return fmt.Sprintf("%d packages compiled", l.compiled)
}

// report writes the progress of a build to w every few seconds, until the returned function is called with the result.
// On a terminal, it overwrites one line.
func (l *buildLog) report(w io.Writer, what string) (stop func(error)) {
	every, before, after := 15*time.Second, "", "\n"
	if isTerminal(w) {
		every, before, after = time.Second, "\r\033[K", ""
	}
	start := time.Now()
	tell := func(state string) {
		fmt.Fprintf(w, "%scompiling %s: %s, %s%s", before, what, state, time.Since(start).Round(time.Second), after)
	}
	fmt.Fprintf(w, "compiling %s: the first time this takes minutes\n", what)

	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell(l.String())
			case <-done:
				return
			}
		}
	}()
	return func(err error) {
		close(done)
		<-stopped
		after = "\n"
		if err != nil {
			tell("failed")
			return
		}
		tell("done")
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
