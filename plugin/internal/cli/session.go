// Package cli holds what the commands of `kubectl nstpl` share.
//
// Every command is made from a Session: the streams that it reads and writes, and the flags that choose a cluster and a
// user. Each family of commands is a package of its own beside this one (namespace, diff, tree, vet, attribute,
// constraint), embeds the Session in its commands and imports no other family. What a command prints follows three
// rules:
//
//   - The result is on standard output, and nothing else is. Notes about it are on standard error (Session.Note).
//   - A wrong command line is a UsageError, which names the help to read.
//   - The exit code is 0 or 1, as with kubectl, unless the command documents another: then it returns an Exit.
package cli

import (
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// FieldManager is the field manager of what the plugin itself writes, such as Namespaces. The populated objects are the
// operator's.
const FieldManager = "kubectl-nstpl"

// Session is what a command works with: its streams, and the flags that choose a cluster and a user.
type Session struct {
	genericiooptions.IOStreams
	// Config holds the values of kubectl's flags, such as --context, --namespace and --as.
	Config *genericclioptions.ConfigFlags
}

// NewSession returns a session with the default of every flag. It prints the API server's warnings to standard error.
func NewSession(streams genericiooptions.IOStreams) Session {
	s := Session{IOStreams: streams, Config: genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(-1)}
	warnings := rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true, Color: printers.AllowsColorOutput(streams.ErrOut),
	})
	s.Config.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS = -1 // the API server's priority and fairness limits the requests
		config.UserAgent = "kubectl-nstpl/" + version.String()
		config.WarningHandler = warnings
		return config
	}
	return s
}

// Connect returns clients that act as the user, or as the one that --as impersonates. It sends no request.
func (s Session) Connect() (*cluster.Cluster, error) {
	return cluster.Connect(s.Config)
}

// ConnectAsSelf returns clients that act as the user, without regard to --as. It sends no request.
func (s Session) ConnectAsSelf() (*cluster.Cluster, error) {
	return cluster.Connect(withoutImpersonation{s.Config})
}

type withoutImpersonation struct {
	genericclioptions.RESTClientGetter
}

// ToRESTConfig drops the impersonation from a copy, since the embedded getter may hand out one config several times.
func (g withoutImpersonation) ToRESTConfig() (*rest.Config, error) {
	config, err := g.RESTClientGetter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{}
	return config, nil
}

// Namespace returns the namespace that --namespace or else the kubeconfig names. Explicit reports whether it was the
// flag.
func (s Session) Namespace() (name string, explicit bool, err error) {
	return s.Config.ToRawKubeConfigLoader().Namespace()
}

// Note prints a line to standard error, beside the result.
func (s Session) Note(format string, args ...any) {
	output.Line(s.ErrOut, format, args...)
}
