// Command nstpl-operator populates namespaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/operator/version"
)

func main() {
	var options operator.Options
	flag.BoolVar(&options.LeaderElect, "leader-elect", true, "let several replicas run, of which one works")
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8080", "where to serve metrics, or 0")
	flag.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":8081",
		"where to serve /healthz and /readyz, or 0")
	flag.StringVar(&options.WebhookAddress, "webhook-bind-address", ":9443", "where to serve the webhooks")
	flag.StringVar(&options.WebhookURL, "webhook-url", "",
		"where the API server finds the webhooks, as https://host:port, if not through the Service nstpl-operator-webhook")
	flag.StringVar(&options.WebhookCertDir, "webhook-cert-dir", "",
		"where tls.crt and tls.key are if the operator is not to make them")
	flag.StringVar(&options.WebhookClientCAFile, "webhook-client-ca-file", "",
		"the authorities that sign the certificate by which the API server identifies itself; if set, the webhooks answer only the API server")
	flag.BoolVar(&options.MutateNamespaces, "mutate-namespaces", false,
		"stamp creators and hold new namespaces by a webhook: for API servers before 1.36, without MutatingAdmissionPolicies")
	flag.DurationVar(&options.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on after being told to end, while clients are led to other replicas")
	exclude := flag.String("exclude-namespaces", "",
		"comma-separated namespaces that are never populated, besides kube-system, kube-public, kube-node-lease and the operator's own")
	users := flag.String("attribute-exempt-users",
		"system:kube-controller-manager,system:kube-scheduler,"+v1alpha1.OperatorUser,
		"comma-separated users who may touch protected attributes whatever the rules say")
	groups := flag.String("attribute-exempt-groups", "system:serviceaccounts:kube-system",
		"comma-separated groups of such users")
	sccExempt := flag.String("scc-exempt-namespaces", "",
		"comma-separated namespaces whose pods SecurityContextConstraints say nothing about, besides kube-system and the operator's own")
	sccMatch := flag.String("scc-match", "union",
		"whether constraints must be open to the requester or the pod's service account (union), or to both (intersection)")
	execGuard := flag.String("exec-guard", "any",
		"whose constraints let somebody into a pod: any, which counts the pod's service account's, or caller")
	uidRange := flag.String("scc-uid-range", "1000000000-1999999999/10000",
		"the user ids that namespaces are given, and how many each gets")
	mcsRange := flag.String("scc-mcs-range", "s0:/2",
		"what the SELinux levels that namespaces are given begin with, and how many categories each has")
	mcsLabels := flag.Int("scc-mcs-labels-per-namespace", 5, "how many levels each namespace takes up")
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
	options.SCCExemptNamespaces = list(*sccExempt)
	log := zap.New(zap.UseFlagOptions(&logging))
	ctrl.SetLogger(log)
	err := errors.Join(
		choose("scc-match", *sccMatch, "union", "intersection", &options.SCCIntersection),
		choose("exec-guard", *execGuard, "any", "caller", &options.SCCCallerGuardsExec),
		pool(*uidRange, *mcsRange, *mcsLabels, &options.SCCPool))
	var config *rest.Config
	if err == nil {
		config, err = ctrl.GetConfig()
	}
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

// choose sets whether a flag has the second of two values.
func choose(name, value, first, second string, chosen *bool) error {
	if value != first && value != second {
		return fmt.Errorf("--%s is %q: it can be %s or %s", name, value, first, second)
	}
	*chosen = value == second
	return nil
}

func pool(ids, levels string, labels int, into *scc.Pool) (err error) {
	if *into, err = scc.NewPool(ids, levels, labels); err != nil {
		return fmt.Errorf("--scc-uid-range, --scc-mcs-range: %w", err)
	}
	return nil
}
