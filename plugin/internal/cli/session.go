// Package cli holds what the commands of `kubectl nstpl` share.
//
// Every command is created with a Session: the streams that it reads and writes, and the flags that select a cluster
// and a user. Each family of commands is a package beside this one, and does not import another family. Commands follow
// three rules:
//
//   - Standard output holds only the result. Notes about it go to standard error (Session.Note).
//   - An invalid command line is a UsageError, which refers to the command's help.
//   - The exit code is 0 or 1, as with kubectl. A command that documents another exit code returns an Exit.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// FieldManager is the field manager for the plugin's own writes, such as new Namespaces. The operator writes the
// populated objects with a field manager of its own.
const FieldManager = "kubectl-nstpl"

// Session holds the streams of a command, and the flags that select a cluster and a user.
type Session struct {
	genericiooptions.IOStreams
	// Config holds the values of kubectl's flags, such as --context, --namespace and --as.
	Config *genericclioptions.ConfigFlags

	// chunkSize is the value of the flag --chunk-size.
	chunkSize *int64
	// context is one of those of --contexts, or empty.
	context string
}

// NewSession returns a session with the default value of every flag. Warnings of the API server go to standard error.
func NewSession(streams genericiooptions.IOStreams) Session {
	s := Session{
		IOStreams: streams, Config: genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(-1),
		chunkSize: new(int64),
	}
	warnings := rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true, Color: printers.AllowsColorOutput(streams.ErrOut),
	})
	s.Config.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS = -1 // API Priority and Fairness limits the requests on the server
		config.UserAgent = "kubectl-nstpl/" + version.String()
		config.WarningHandler = warnings
		return config
	}
	return s
}

// ForContext returns a session for one of several contexts of the kubeconfig. All other flags keep their values. Its
// notes begin with the context. An empty name returns the session as it is.
func (s Session) ForContext(name string) Session {
	if name == "" {
		return s
	}
	flags, own := genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(-1), s.Config
	flags.Context = &name
	flags.CacheDir, flags.KubeConfig = own.CacheDir, own.KubeConfig
	flags.ClusterName, flags.AuthInfoName, flags.Namespace = own.ClusterName, own.AuthInfoName, own.Namespace
	flags.APIServer, flags.TLSServerName, flags.Insecure = own.APIServer, own.TLSServerName, own.Insecure
	flags.CertFile, flags.KeyFile, flags.CAFile = own.CertFile, own.KeyFile, own.CAFile
	flags.BearerToken, flags.Username, flags.Password = own.BearerToken, own.Username, own.Password
	flags.Impersonate, flags.ImpersonateUID = own.Impersonate, own.ImpersonateUID
	flags.ImpersonateGroup, flags.ImpersonateUserExtra = own.ImpersonateGroup, own.ImpersonateUserExtra
	flags.Timeout, flags.DisableCompression, flags.ProxyURL = own.Timeout, own.DisableCompression, own.ProxyURL
	flags.WrapConfigFn = own.WrapConfigFn
	s.Config, s.context = flags, name
	return s
}

// Connect returns clients that act as the user, or as the user that --as impersonates. It sends no request.
func (s Session) Connect() (*cluster.Cluster, error) {
	return s.connect(s.Config)
}

func (s Session) connect(getter genericclioptions.RESTClientGetter) (*cluster.Cluster, error) {
	c, err := cluster.Connect(getter)
	if err == nil {
		c.ChunkSize = *s.chunkSize
	}
	return c, err
}

// defaultChunkSize needs a few MiB for each list that is read, and no round trip for each few objects.
const defaultChunkSize = 1000

// AddChunkSizeFlag adds kubectl's flag --chunk-size to a command.
func (s Session) AddChunkSizeFlag(cmd *cobra.Command) {
	cmd.Flags().Int64Var(s.chunkSize, "chunk-size", defaultChunkSize,
		"Read large lists in chunks of so many objects, rather than all at once. Pass 0 to disable.")
}

// ConnectAsSelf returns clients that act as the user and ignore --as. It sends no request.
func (s Session) ConnectAsSelf() (*cluster.Cluster, error) {
	return s.connect(impersonating{s.Config, ""})
}

// ConnectAs returns clients that act as a user, as the API server knows it. The user of the kubeconfig needs the right
// to impersonate that user. It sends no request.
func (s Session) ConnectAs(user string) (*cluster.Cluster, error) {
	return s.connect(impersonating{s.Config, user})
}

type impersonating struct {
	genericclioptions.RESTClientGetter
	// user is the user to impersonate, or empty for none.
	user string
}

// ToRESTConfig returns a copy of the configuration that impersonates the user, and no user of --as. The embedded getter
// may return the same configuration several times, so it is not changed.
func (g impersonating) ToRESTConfig() (*rest.Config, error) {
	config, err := g.RESTClientGetter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: g.user}
	return config, nil
}

// Namespace returns the namespace of the flag --namespace or, without the flag, of the kubeconfig. Explicit reports
// whether the flag is set.
func (s Session) Namespace() (name string, explicit bool, err error) {
	return s.Config.ToRawKubeConfigLoader().Namespace()
}

// Note prints one sentence about the result to standard error. The commands that it proposes are for the session's
// cluster.
func (s Session) Note(format string, args ...any) {
	output.Note(s.ErrOut, "%s", Prefix(s.context)+s.Commands(fmt.Sprintf(format, args...)))
}
