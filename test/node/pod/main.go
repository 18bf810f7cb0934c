// Command pod is what runs in the pods of a test's node: it waits to be ended, or with the argument id says who runs
// it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	if slices.Equal(os.Args[1:], []string{"id"}) {
		fmt.Fprintf(os.Stdout, "uid=%d gid=%d\n", os.Getuid(), os.Getgid())
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
