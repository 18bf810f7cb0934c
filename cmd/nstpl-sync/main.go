// Command nstpl-sync has a cluster follow trees of policies in Git. It parses the flags and runs package gitsync.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no certificates of authorities
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/cmd/internal/memory"
	"nstpl.dev/nstpl/operator/gitsync"
	"nstpl.dev/nstpl/operator/version"
)

func main() {
	// A commit is read in one burst, whose memory is garbage afterwards.
	memory.Collect(memory.Growth{Size: 96 << 20, Percent: 20})
	var options gitsync.Options
	flag.BoolVar(&options.LeaderElect, "leader-elect", true,
		"elect a leader, so that only one of several replicas writes to the cluster")
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8080",
		"the address of the metrics endpoint, or 0 to disable it")
	flag.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":8081",
		"the address of the endpoints /healthz and /readyz, or 0 to disable them")
	flag.StringVar(&options.HintAddress, "hint-bind-address", ":8082",
		"the address of the endpoint /hint/NAME for push hints, or 0 to disable it")
	flag.StringVar(&options.Dir, "dir", "/tmp/nstpl-sync", "the directory for fetched commits")
	printVersion := flag.Bool("version", false, "print the version and exit")
	logOptions := zap.Options{StacktraceLevel: zapcore.PanicLevel}
	logOptions.BindFlags(flag.CommandLine)
	flag.Parse()
	if *printVersion {
		fmt.Println(version.String()) //nolint:forbidigo // the output of the flag
		return
	}
	log := zap.New(zap.UseFlagOptions(&logOptions))
	ctrl.SetLogger(log)
	memory.LogUnlimited(log)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = gitsync.Run(ctrl.SetupSignalHandler(), config, options)
	}
	if err != nil {
		log.Error(err, "nstpl-sync failed")
		os.Exit(1)
	}
}
