// Command nstpl-operator is the operator of nstpl. It parses the flags and runs package operator.
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

	"nstpl.dev/nstpl/cmd/internal/memory"
	"nstpl.dev/nstpl/operator"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/operator/version"
)

func main() {
	// The caches are most of the heap, and change little.
	memory.Collect(memory.Growth{Size: 96 << 20, Percent: 25})
	var options operator.Options
	flag.BoolVar(&options.LeaderElect, "leader-elect", true,
		"elect a leader, so that only one of several replicas writes to the cluster")
	flag.StringVar(&options.MetricsAddress, "metrics-bind-address", ":8080",
		"the address of the metrics endpoint, or 0 to disable it")
	flag.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":8081",
		"the address of the endpoints /healthz and /readyz, or 0 to disable them")
	flag.StringVar(&options.Webhook.Address, "webhook-bind-address", ":9443", "the address of the webhook server")
	flag.StringVar(&options.Webhook.URL, "webhook-url", "",
		"the URL at which the API server reaches the webhooks, as https://host:port "+
			"(default: the Service nstpl-operator-webhook)")
	flag.StringVar(&options.Webhook.CertDir, "webhook-cert-dir", "",
		"a directory with tls.crt and tls.key for the webhooks (default: the operator creates a certificate)")
	flag.StringVar(&options.Webhook.ClientCAFile, "webhook-client-ca-file", "",
		"a file with the CA certificates that sign the API server's client certificate; "+
			"if set, the webhooks accept requests only with such a certificate")
	flag.BoolVar(&options.MutateNamespaces, "mutate-namespaces", false,
		"record creators and hold new namespaces with a webhook, "+
			"for API servers without MutatingAdmissionPolicies (before 1.36)")
	flag.DurationVar(&options.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long the operator keeps serving requests after a termination signal, "+
			"while clients are redirected to other replicas")
	flag.BoolVar(&options.OpenReports, "open-reports", false,
		"write what is wrong in each namespace to a Report of openreports.io")
	flag.BoolVar(&options.SelfServiceOnly, "self-service-only", false,
		"deny users to create namespaces outside of policyspaces with spec.selfService, "+
			"unless they may patch policyspaces")
	exclude := flag.String("exclude-namespaces", "",
		"comma-separated namespaces that are never populated, "+
			"in addition to kube-system, kube-public, kube-node-lease, nstpl-trial and the operator's own namespace; "+
			"only users who may patch all namespacetemplates create them")
	users := flag.String("attribute-exempt-users",
		"system:kube-controller-manager,system:kube-scheduler,"+v1alpha1.OperatorUser,
		"comma-separated users who may set protected attributes regardless of the rules")
	groups := flag.String("attribute-exempt-groups", "system:serviceaccounts:kube-system",
		"comma-separated groups whose members may set protected attributes regardless of the rules")
	sccExempt := flag.String("scc-exempt-namespaces", "",
		"comma-separated namespaces in which SecurityContextConstraints do not apply, "+
			"in addition to kube-system and the operator's own namespace; "+
			"only users who may patch all namespacetemplates create them")
	sccMatch := flag.String("scc-match", "union",
		"who must be allowed to use SecurityContextConstraints for a pod: "+
			"union (the requester or the pod's service account) or intersection (both)")
	execGuard := flag.String("exec-guard", "any",
		"who must be allowed to use SecurityContextConstraints for exec and attach: "+
			"any (the caller or the pod's service account) or caller (only the caller)")
	uidRange := flag.String("scc-uid-range", "1000000000-1999999999/10000",
		"the range of user IDs to allocate to namespaces, and the number of IDs for each namespace")
	mcsRange := flag.String("scc-mcs-range", "s0:/2",
		"the prefix of the SELinux levels to allocate to namespaces, and the number of categories in each level")
	mcsLabels := flag.Int("scc-mcs-labels-per-namespace", 5,
		"the number of SELinux levels to reserve for each namespace")
	printVersion := flag.Bool("version", false, "print the version and exit")
	// Most errors come from the API server. A stack trace of the operator does not help to understand them.
	logOptions := zap.Options{StacktraceLevel: zapcore.PanicLevel}
	logOptions.BindFlags(flag.CommandLine)
	flag.Parse()
	if *printVersion {
		fmt.Println(version.String()) //nolint:forbidigo // the output of the flag
		return
	}
	options.ExcludeNamespaces = splitList(*exclude)
	options.AttributeExempt.Users, options.AttributeExempt.Groups = splitList(*users), splitList(*groups)
	options.SCC.ExemptNamespaces = splitList(*sccExempt)
	log := zap.New(zap.UseFlagOptions(&logOptions))
	ctrl.SetLogger(log)
	memory.LogUnlimited(log)
	err := errors.Join(
		parseChoice("scc-match", *sccMatch, "union", "intersection", &options.SCC.Intersection),
		parseChoice("exec-guard", *execGuard, "any", "caller", &options.SCC.CallerGuardsExec),
		parsePool(*uidRange, *mcsRange, *mcsLabels, &options.SCC.Pool))
	var config *rest.Config
	if err == nil {
		config, err = ctrl.GetConfig()
	}
	if err == nil {
		err = operator.Run(ctrl.SetupSignalHandler(), config, options)
	}
	if err != nil {
		log.Error(err, "operator failed")
		os.Exit(1)
	}
}

// splitList returns the elements of a comma-separated list, without the spaces around them.
func splitList(text string) []string {
	var elements []string
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); element != "" {
			elements = append(elements, element)
		}
	}
	return elements
}

// parseChoice parses a flag with two values. It sets isSecond to whether the flag has the second value.
func parseChoice(name, value, first, second string, isSecond *bool) error {
	if value != first && value != second {
		return fmt.Errorf("invalid --%s %q: must be %s or %s", name, value, first, second)
	}
	*isSecond = value == second
	return nil
}

func parsePool(ids, levels string, labels int, pool *scc.Pool) (err error) {
	if *pool, err = scc.NewPool(ids, levels, labels); err != nil {
		return fmt.Errorf("--scc-uid-range, --scc-mcs-range: %w", err)
	}
	return nil
}
