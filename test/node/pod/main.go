// Command pod is the program of the pods of a test's node. It waits until it is stopped, or with the argument id prints
// its user.
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
