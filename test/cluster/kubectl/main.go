// Command kubectl is kubectl. As a part of the control plane's binary it would need twice the CPU time to start.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // cloud logins
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
}
