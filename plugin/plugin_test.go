package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestExitCodeAndMessage(t *testing.T) {
	tests := map[string]struct {
		err     error
		code    int
		message string
	}{
		"no error":    {nil, 0, ""},
		"an error":    {errors.New("no"), 1, "error: no"},
		"differences": {&cli.Exit{Code: 1}, 1, ""},
		"a failure":   {&cli.Exit{Code: 2, Err: errors.New("no")}, 2, "error: no"},
		"wrapped":     {fmt.Errorf("x: %w", &cli.Exit{Code: 2, Err: errors.New("no")}), 2, "error: no"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.code, plugin.ExitCode(test.err))
			require.Equal(t, test.message, plugin.Message(test.err))
		})
	}
}

// silentServer selects an API server that answers no request or, with reads, only requests that read. It returns the
// methods of the unanswered requests.
func silentServer(t *testing.T, reads bool) (unanswered <-chan string) {
	t.Helper()
	received, end := make(chan string, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads && r.Method == http.MethodGet {
			fmt.Fprint(w, "{}")
			return
		}
		received <- r.Method
		<-end
	}))
	t.Cleanup(func() {
		close(end)
		server.Close()
	})
	selectServer(t, server)
	return received
}

// selectServer makes a server the cluster of the context a, which is the current one.
func selectServer(t *testing.T, server *httptest.Server) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config",
		"clusters": [{"name": "a", "cluster": {"server": %q}}, {"name": "b", "cluster": {"server": "%[1]s/b"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}, {"name": "b", "context": {"cluster": "b"}}],
		"current-context": "a"}`, server.URL), 0o600))
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("KUBECACHEDIR", t.TempDir())
}

// forbidden is the answer to a request that the user may not send.
const forbidden = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
	"message": "you may not"}`

// serve selects an API server with some answers, by their paths. It has no other objects. The paths that begin with /b
// are those of the cluster of the context b.
func serve(t *testing.T, answers map[string]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, exists := answers[r.URL.Path]
		switch {
		case strings.HasSuffix(r.URL.Path, "/version"):
			answer = `{"gitVersion": "v1.37.2"}`
		case !exists:
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
		case answer == forbidden:
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	selectServer(t, server)
}

// run runs the plugin, and returns its exit code and all that it prints.
func run(t *testing.T, args ...string) (code int, printed string) {
	t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	code = plugin.Run(t.Context(), append([]string{"kubectl-nstpl"}, args...), streams)
	return code, out.String() + errOut.String()
}

// To a user without rights, the API server says that a request is forbidden, whether nstpl is installed or not. The
// ClusterRoles of nstpl do not exist in a cluster without it.
func TestUsersWithoutRightsLearnThatNstplIsNotInstalled(t *testing.T) {
	serve(t, map[string]string{
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates/budget": forbidden,
		"/apis/policy.nstpl.dev/v1alpha1/policyrepositories/corp":   forbidden,
		"/apis/policy.nstpl.dev/v1alpha1/templateexemptions":        forbidden,
	})
	for _, command := range []string{"rollout status budget", "sync now corp", "exempt --list"} {
		code, printed := run(t, strings.Fields(command)...)
		require.Equal(t, 1, code)
		require.Contains(t, printed, "error: nstpl is not installed in this cluster", command)
	}
}

// An operator with --leader-elect=false holds no lease.
func TestAnOperatorWithoutALeaseMayRun(t *testing.T) {
	const nstpl = "/apis/policy.nstpl.dev/v1alpha1"
	answers := map[string]string{
		nstpl: `{"kind": "APIResourceList"}`,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{"apiVersion": "authentication.k8s.io/v1",
			"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "jane"}}}`,
		"/api/v1/namespaces/a": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}`,
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	for _, path := range []string{
		nstpl + "/namespacetemplates", nstpl + "/policyspaces", nstpl + "/policyrepositories",
		nstpl + "/clusterprotectedattributes", nstpl + "/namespaces/a/protectedattributes",
		nstpl + "/securitycontextconstraints", rbac + "/clusterrolebindings", rbac + "/namespaces/a/rolebindings",
		rbac + "/clusterroles", rbac + "/namespaces/a/roles",
	} {
		answers[path] = forbidden
	}
	serve(t, answers)
	_, printed := run(t, "version")
	require.Contains(t, printed, "Operator Version: unknown (none has held its lease)\n")
	_, printed = run(t, "report", "a", "-o", "csv")
	require.Contains(t, printed, "so unless one runs with --leader-elect=false, states may be missing or old")
}

// What one command prints as the name of an object is an argument of another.
func TestArgumentsMayHaveTheResource(t *testing.T) {
	serve(t, map[string]string{
		"/apis/policy.nstpl.dev/v1alpha1/policyrepositories/corp": `{"apiVersion": "policy.nstpl.dev/v1alpha1",
			"kind": "PolicyRepository", "metadata": {"name": "corp"}, "spec": {"suspend": true}}`,
	})
	_, name := run(t, "sync", "status", "policyrepository.policy.nstpl.dev/corp", "-o", "name")
	name, _, _ = strings.Cut(name, "\n")
	require.Equal(t, "policyrepository.policy.nstpl.dev/corp", name)
	for _, command := range []string{"sync now", "sync suspend", "sync history", "sync confirm"} {
		args := append(strings.Fields(command), name)
		if command == "sync confirm" {
			args = append(args, "1a2b3c4")
		}
		_, printed := run(t, args...)
		require.Regexp(t, `suspended|No sync history|has no deletions to confirm`, printed, command)
	}
	_, printed := run(t, "scc", "who-can-use", "deployment/web")
	require.Contains(t, printed, `error: "deployment/web" is not a SecurityContextConstraints`)
}

// An owner may list the exemptions of a namespace, and not those of others.
func TestExemptionsInOtherFormatsAreThoseOfTheNamespace(t *testing.T) {
	for command, want := range map[string]string{
		"exempt --list -o json":           "run 'kubectl get templateexemptions -A'",
		"exempt --list -o json team-a":    "run 'kubectl get templateexemptions -n team-a'",
		"exempt --list -o json -n team-b": "run 'kubectl get templateexemptions -n team-b'",
	} {
		_, printed := run(t, strings.Fields(command)...)
		require.Contains(t, printed, want)
	}
}

// A mistyped label must not look like namespaces without differences.
func TestADiffOfNoNamespaceFails(t *testing.T) {
	serve(t, map[string]string{
		"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": []}`,
		"/api/v1/namespaces": `{"kind": "NamespaceList", "apiVersion": "v1", "items": []}`,
		"/b/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": `{"kind": "NamespaceTemplateList",
			"apiVersion": "policy.nstpl.dev/v1alpha1", "items": []}`,
		"/b/api/v1/namespaces": `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "team-b"}}]}`,
	})
	code, printed := run(t, "diff", "-l", "tier=prd")
	require.Equal(t, "error: no namespace matches --selector \"tier=prd\": run 'kubectl get namespaces --show-labels' to "+
		"list their labels\n", printed)
	require.Equal(t, 2, code)

	const none = `context "a": no namespace matches --selector "tier=prd"`
	code, printed = run(t, "diff", "-l", "tier=prd", "--contexts=a")
	require.Contains(t, printed, none)
	require.Equal(t, 2, code)
	code, printed = run(t, "diff", "-l", "tier=prd", "--contexts=a,b")
	require.Contains(t, printed, none)
	require.Contains(t, printed, "no differences in 1 namespace\n")
	require.Zero(t, code, "a namespace of the other cluster matches")
}

func TestUsagesThatNothingHasCountedCanBeSorted(t *testing.T) {
	serve(t, map[string]string{
		"/apis/policy.nstpl.dev/v1alpha1/policyspaces": `{"kind": "PolicySpaceList",
			"apiVersion": "policy.nstpl.dev/v1alpha1",
			"items": [{"metadata": {"name": "payments"}, "spec": {"quota": {"hard": {"pods": "10"}}}}]}`,
		"/api/v1/namespaces":     `{"kind": "NamespaceList", "apiVersion": "v1", "items": []}`,
		"/api/v1/resourcequotas": `{"kind": "ResourceQuotaList", "apiVersion": "v1", "items": []}`,
	})
	for _, field := range []string{".percent", ".used"} {
		code, printed := run(t, "top", "space", "--sort-by", field)
		require.Contains(t, printed, "policyspace/payments")
		require.Zero(t, code)
	}
}

// Before Kubernetes 1.36, the API server creates namespaces without the operator's webhook if no operator runs.
func TestANamespaceWithoutInitializersMayBePopulatedLater(t *testing.T) {
	for annotations, want := range map[string]string{
		`{}`: "error: namespace/team-a was created, but it is unknown whether it is populated: no operator holds lease",
		`{"authorization.k8s.io/creator": "jane"}`:      "namespace/team-a has no pending initializers: there is nothing to wait for\n",
		`{"policy/namespace-template-opt-out": "true"}`: "namespace/team-a is not populated: the namespace is opted out",
	} {
		serve(t, map[string]string{
			"/apis/policy.nstpl.dev/v1alpha1": `{"kind": "APIResourceList"}`,
			"/api/v1/namespaces": `{"apiVersion": "v1", "kind": "Namespace",
				"metadata": {"name": "team-a", "annotations": ` + annotations + `}}`,
			"/apis/policy.nstpl.dev/v1alpha1/namespacetemplates": forbidden,
		})
		code, printed := run(t, "create", "team-a")
		require.Contains(t, printed, want)
		require.Equal(t, strings.HasPrefix(want, "error"), code == 1)
	}
}

// Users copy what an output proposes, and without the flag --context, it would run in the cluster of another context.
func TestProposedCommandsSelectTheClusterOfTheFlags(t *testing.T) {
	commit := strings.Repeat("2", 40)
	const nstpl = "/apis/policy.nstpl.dev/v1alpha1/"
	serve(t, map[string]string{
		nstpl + "policyrepositories/foo-corp": `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "PolicyRepository",
			"metadata": {"name": "foo-corp"}, "spec": {"suspend": true},
			"status": {"pendingDeletions": {"commit": "` + commit + `", "namespaces": ["team-a"], "total": 1}}}`,
		nstpl + "namespacetemplates/budget": `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "NamespaceTemplate",
			"metadata": {"name": "budget"}, "status": {"revisions": [{"revision": 2, "state": "Paused"}]}}`,
	})
	for want, args := range map[string][]string{
		"To confirm: kubectl nstpl sync confirm foo-corp " + commit:       {"sync", "status", "foo-corp"},
		"is suspended: run 'kubectl nstpl sync resume foo-corp":           {"sync", "now", "foo-corp"},
		"the rollout is paused: run 'kubectl nstpl rollout resume budget": {"rollout", "status", "budget", "-w=false"},
		"Use a PriorityClass that 'kubectl get priorityclasses":           {"why", "no PriorityClass with name a was found"},
	} {
		t.Run(want, func(t *testing.T) {
			_, printed := run(t, append(args, "--context", "a")...)
			require.Contains(t, printed, want+" --context a")
		})
	}
	_, printed := run(t, "why", "-o=json", "no PriorityClass with name a was found", "--context", "a")
	require.Contains(t, printed, "that 'kubectl get priorityclasses' lists", "programs get no flags")
}

func TestInterruptedCommandsEndAndShowWhatIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a read":                   {[]string{"status", "team-a"}, "error: interrupted\n"},
		"a read that exits with 2": {[]string{"diff", "team-a"}, "error: interrupted\n"},
		"a request for kinds": {
			[]string{"vet", "--server", "-f", "../manifests/samples/security-defaults.yaml"}, "error: interrupted\n",
		},
		"a write": {
			[]string{"create", "team-a"},
			"error: interrupted during a write: it is unknown whether the change was made\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			unanswered := silentServer(t, name == "a write")
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-unanswered
				cancel()
			}()
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			code := plugin.Run(ctx, append([]string{"kubectl-nstpl"}, test.args...), streams)
			require.Equal(t, 130, code)
			require.Equal(t, test.want, errOut.String())
		})
	}
}

// What an interrupted command proposes must not run in the cluster of another context either.
func TestInterruptedCommandsProposeCommandsForTheirCluster(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/namespacetemplates") {
			cancel()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}`)
	}))
	t.Cleanup(server.Close)
	selectServer(t, server)
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	require.Equal(t, 130, plugin.Run(ctx, []string{"kubectl-nstpl", "create", "team-a", "--context", "a"}, streams))
	require.Equal(t, "error: interrupted: namespace/team-a was created: run 'kubectl nstpl status team-a --context a' to "+
		"check whether it is populated\n", errOut.String())
}

// A read of standard input does not end with the context.
func TestAnInterruptedReadOfInputEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	streams.In = readerFunc(func([]byte) (int, error) {
		cancel()
		select {}
	})
	require.Equal(t, 130, plugin.Run(ctx, []string{"kubectl-nstpl", "vet", "-f", "-"}, streams))
	require.Equal(t, "error: interrupted\n", errOut.String())
}

// readerFunc is a function as an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRequestTimeout(t *testing.T) {
	const message = "Unable to connect to the server: no answer in time: check the connection, or increase --request-timeout"
	for command, want := range map[string]string{
		"status team-a": message, "diff team-a": message, "tree": message, "attributes": message, "version": message,
		"sync status": message, "rollout status a": message, "scc preflight": message,
		"create team-a": message + "; it is unknown whether the change was made",
	} {
		t.Run(command, func(t *testing.T) {
			silentServer(t, command == "create team-a")
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			args := append([]string{"kubectl-nstpl"}, strings.Fields(command)...)
			require.NotZero(t, plugin.Run(t.Context(), append(args, "--request-timeout=50ms"), streams))
			require.Equal(t, want+"\n", errOut.String())
		})
	}
}

func TestRunCompletesForKubectl(t *testing.T) {
	for _, program := range []string{
		"kubectl_complete-nstpl", "/usr/bin/kubectl_complete-nstpl", "kubectl_complete-nstpl.exe",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		require.Zero(t, plugin.Run(t.Context(), []string{program, "pre"}, streams))
		require.True(t, strings.HasPrefix(out.String(), "preview\t"), out.String())
		require.True(t, strings.HasSuffix(out.String(), "\n:4\n"), out.String())
	}
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	require.Equal(t, 1, plugin.Run(t.Context(), []string{"kubectl-nstpl", "pre"}, streams))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "Did you mean this?\n  preview\n")
}

func TestEveryCommandHasHelpWithExample(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := plugin.NewCommand(streams)
	for _, cmd := range root.Commands() {
		require.Contains(t, cmd.Example, "kubectl nstpl "+cmd.Name(), cmd.Name())
		require.NotEmpty(t, cmd.Short)
		require.LessOrEqual(t, len(cmd.Short), 70, cmd.Short)
		var help bytes.Buffer
		cmd.SetOut(&help)
		require.NoError(t, cmd.Help())
		require.Contains(t, help.String(), "Usage:\n  kubectl nstpl "+cmd.Name())
	}
}

// Proposed commands select the server by -s: --server is another flag of vet and preview.
func TestEveryCommandSelectsTheServer(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.InheritedFlags() // adds them to those of the command
		flag := cmd.Flags().ShorthandLookup("s")
		require.NotNil(t, flag, cmd.CommandPath())
		require.Contains(t, flag.Usage, "The address and port of the Kubernetes API server", cmd.CommandPath())
		for _, subcommand := range cmd.Commands() {
			check(subcommand)
		}
	}
	for _, cmd := range plugin.NewCommand(streams).Commands() {
		check(cmd)
	}
}

// Every example is a valid command line: its command and flags exist, and the number of arguments is allowed.
func TestExamplesAreValidCommandLines(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			commandLine, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl nstpl ")
			if !ok {
				continue
			}
			for _, end := range []string{" | ", " && ", " >"} {
				commandLine, _, _ = strings.Cut(commandLine, end)
			}
			example, args, err := plugin.NewCommand(streams).Find(strings.Fields(commandLine))
			require.NoError(t, err, line)
			require.NoError(t, example.ParseFlags(args), line)
			require.NoError(t, example.ValidateArgs(example.Flags().Args()), line)
		}
		for _, subcommand := range cmd.Commands() {
			check(subcommand)
		}
	}
	check(plugin.NewCommand(streams))
}

// named matches the command lines that manuals, alerts and messages contain: in quotes, or at the start of a line.
var named = regexp.MustCompile("[`']kubectl nstpl ([^`'|;&>#]+)|(?m:^ *kubectl nstpl ([^|;&>#.\n]+))")

// The commands and flags that manuals, alerts and messages name exist.
func TestNamedCommandsAndFlagsExist(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	count := 0
	check := func(path, commandLine string) {
		words := strings.Fields(strings.NewReplacer("\"+", "", `"`, "").Replace(commandLine))
		cmd, args, err := plugin.NewCommand(streams).Find(words)
		require.NoError(t, err, "%s: %s", path, commandLine)
		require.True(t, cmd.HasParent(), "%s: %s", path, commandLine)
		isUnknown := cmd.HasSubCommands() && cmd.Use == cmd.Name() && len(args) > 0 && args[0][0] != '-'
		require.False(t, isUnknown, "%s: %s", path, commandLine)
		cmd.InheritedFlags() // adds them to those of the command
		for _, arg := range args {
			name, isLong := strings.CutPrefix(arg, "--")
			name, _, _ = strings.Cut(name, "=")
			switch {
			case isLong && name != "":
				require.NotNil(t, cmd.Flags().Lookup(name), "%s: --%s in %s", path, name, commandLine)
			case !isLong && len(arg) == 2 && arg[0] == '-':
				require.NotNil(t, cmd.Flags().ShorthandLookup(arg[1:]), "%s: %s in %s", path, arg, commandLine)
			}
		}
		count++
	}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist"}, entry.Name()) {
				return fs.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(path)) || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		for _, match := range named.FindAllStringSubmatch(string(content), -1) {
			check(path, match[1]+match[2])
		}
		return err
	}))
	require.Greater(t, count, 300)
}
