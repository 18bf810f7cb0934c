// Command lacks prints the reason why the end-to-end tests cannot run on this machine, or nothing.
package main

import (
	"context"
	"fmt"
	"os"

	"nstpl.dev/nstpl/test/node"
)

func main() {
	if lacks := node.Lacks(context.Background()); lacks != "" {
		fmt.Fprintln(os.Stdout, "make e2e was NOT RUN:", lacks)
	}
}
