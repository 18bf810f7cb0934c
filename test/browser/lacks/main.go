// Command lacks prints the reason why the tests in a browser cannot run on this machine, or nothing.
package main

import (
	"fmt"
	"os"

	"nstpl.dev/nstpl/test/browser"
)

func main() {
	if lacks := browser.Lacks(); lacks != "" {
		fmt.Fprintln(os.Stdout, "the tests in a browser were NOT RUN:", lacks)
	}
}
