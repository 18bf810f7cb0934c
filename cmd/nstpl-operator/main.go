// Command nstpl-operator populates namespaces.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/version"
)

func main() {
	var options operator.Options
	flag.BoolVar(&options.LeaderElect, "leader-elect", true, "let several replicas run, of which one works")
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8080", "where to serve metrics, or 0")
	flag.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":8081", "where to serve /healthz and /readyz, or 0")
	flag.StringVar(&options.WebhookAddress, "webhook-bind-address", ":9443", "where to serve the webhooks")
	flag.StringVar(&options.WebhookURL, "webhook-url", "",
		"where the API server finds the webhooks, as https://host:port, if not through the Service nstpl-operator-webhook")
	flag.StringVar(&options.WebhookCertDir, "webhook-cert-dir", "", "where tls.crt and tls.key are if the operator is not to make them")
	flag.BoolVar(&options.MutateNamespaces, "mutate-namespaces", false,
		"stamp creators and hold new namespaces by a webhook: for API servers before 1.36, without MutatingAdmissionPolicies")
	exclude := flag.String("exclude-namespaces", "", "comma-separated namespaces that are never populated, besides kube-* and the operator's own")
	users := flag.String("attribute-exempt-users", "system:kube-controller-manager,system:kube-scheduler,"+v1alpha1.OperatorUser,
		"comma-separated users who may touch protected attributes whatever the rules say")
	groups := flag.String("attribute-exempt-groups", "system:serviceaccounts:kube-system", "comma-separated groups of such users")
	printVersion := flag.Bool("version", false, "print the version and exit")
	// An error of the API server's says what is wrong; where it passed through our code does not.
	logging := zap.Options{StacktraceLevel: zapcore.PanicLevel}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	if *printVersion {
		fmt.Println(version.String()) //nolint:forbidigo // it is what the flag asks for
		return
	}
	options.ExcludeNamespaces = list(*exclude)
	options.AttributeExemptUsers, options.AttributeExemptGroups = list(*users), list(*groups)
	log := zap.New(zap.UseFlagOptions(&logging))
	ctrl.SetLogger(log)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = operator.Run(ctrl.SetupSignalHandler(), config, options)
	}
	if err != nil {
		log.Error(err, "the operator stops")
		os.Exit(1)
	}
}

// list returns the parts of a comma-separated list.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}
