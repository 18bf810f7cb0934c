package cli

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/printers"
)

// Progress shows a text on standard error from one second after the call until the caller calls done. It shows nothing
// if standard error is not a terminal, or for one of several clusters, which are read at the same time.
func (s Session) Progress(text string) (done func()) {
	if s.context != "" || !printers.IsTerminal(s.ErrOut) {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
		case <-time.After(time.Second):
			fmt.Fprintf(s.ErrOut, "%s…", text)
			<-stop
			fmt.Fprintf(s.ErrOut, "\r%s\r", strings.Repeat(" ", len(text)+1))
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
