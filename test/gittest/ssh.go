package gittest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gliderlabs/ssh"
	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Key is a pair of SSH keys.
type Key struct {
	Signer cryptossh.Signer
	// Private is the private key in the format of OpenSSH.
	Private []byte
	// Authorized is the public key as a line of authorized_keys.
	Authorized []byte
}

// NewKey returns a new key. Its private key is encrypted unless the passphrase is empty.
func NewKey(t testing.TB, passphrase string) *Key {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := cryptossh.NewSignerFromKey(private)
	require.NoError(t, err)
	block, err := cryptossh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = cryptossh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	require.NoError(t, err)
	return &Key{
		Signer: signer, Private: pem.EncodeToMemory(block),
		Authorized: cryptossh.MarshalAuthorizedKey(signer.PublicKey()),
	}
}

// SSH describes a server of repositories over SSH.
type SSH struct {
	// Authorized is the only key that may read.
	Authorized *Key
	// HostKeys identify the server. Nil means one new key.
	HostKeys []*Key
	// Address is the host:port of the server. Empty means a free port of 127.0.0.1.
	Address string
	// UploadPack replaces git upload-pack in a directory, if it is not nil.
	UploadPack func(session ssh.Session, dir string)
}

// SSHServer is a running server.
type SSHServer struct {
	// URL is the address of the directory, without a slash at the end.
	URL string
	// KnownHosts are the lines of known_hosts for the server.
	KnownHosts []byte
}

// ServeSSH serves the bare repositories in a directory by git upload-pack until the test ends.
func ServeSSH(t testing.TB, root string, o SSH) *SSHServer {
	t.Helper()
	if o.HostKeys == nil {
		o.HostKeys = []*Key{NewKey(t, "")}
	}
	if o.UploadPack == nil {
		o.UploadPack = runUploadPack
	}
	server := &ssh.Server{
		Handler: func(session ssh.Session) { o.handle(session, root) },
		PublicKeyHandler: func(_ ssh.Context, key ssh.PublicKey) bool {
			return o.Authorized != nil && ssh.KeysEqual(key, o.Authorized.Signer.PublicKey())
		},
	}
	listener, err := listen(t.Context(), o.Address)
	require.NoError(t, err)
	var known strings.Builder
	for _, key := range o.HostKeys {
		server.AddHostKey(key.Signer)
		known.WriteString(knownhosts.Line([]string{listener.Addr().String()}, key.Signer.PublicKey()) + "\n")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with an error when the server is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return &SSHServer{URL: "ssh://git@" + listener.Addr().String(), KnownHosts: []byte(known.String())}
}

// handle runs the command of a session.
func (o SSH) handle(session ssh.Session, root string) {
	command := session.Command()
	if len(command) != 2 || command[0] != "git-upload-pack" {
		_, _ = io.WriteString(session.Stderr(), "only git-upload-pack is allowed\n")
		_ = session.Exit(1)
		return
	}
	// The path is absolute, so the result is below the root.
	o.UploadPack(session, filepath.Join(root, filepath.Clean("/"+command[1])))
}

func runUploadPack(session ssh.Session, dir string) {
	git := exec.CommandContext(session.Context(), "git", "upload-pack", "--strict", dir)
	git.Env = append(os.Environ(), environment...)
	git.Stdout, git.Stderr = session, session.Stderr()
	// Wait would wait for the client to close the input, if git were given the session itself.
	stdin, err := git.StdinPipe()
	if err == nil {
		err = git.Start()
	}
	if err != nil {
		_ = session.Exit(1)
		return
	}
	go func() {
		_, _ = io.Copy(stdin, session)
		stdin.Close()
	}()
	if err := git.Wait(); err != nil {
		_ = session.Exit(1)
		return
	}
	_ = session.Exit(0)
}
