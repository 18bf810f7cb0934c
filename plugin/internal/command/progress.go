package command

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/printers"
)

// progress shows on a terminal what takes longer than a second, until done is called.
func (s session) progress(text string) (done func()) {
	if !printers.IsTerminal(s.ErrOut) {
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
