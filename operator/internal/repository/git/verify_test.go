package git

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha512"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// unsigned is a commit object.
const unsigned = "tree 68aba62e560c0ebc3396e8ae9335232cd93a3f60\n" +
	"author Ada <ada@example.com> 1767225600 +0000\ncommitter Ada <ada@example.com> 1767225600 +0000\n\nSubject\n\nBody\n"

// withSignature adds a header with a signature to a commit object.
func withSignature(commit, header, signature string) string {
	headers, message, _ := strings.Cut(commit, "\n\n")
	lines := strings.ReplaceAll(strings.TrimSuffix(signature, "\n"), "\n", "\n ")
	return headers + "\n" + header + " " + lines + "\n\n" + message
}

func verify(t *testing.T, raw string, keys map[string][]byte) error {
	t.Helper()
	commit, err := parseCommit([]byte(raw))
	require.NoError(t, err)
	commit.Hash = "0123"
	return Verify(commit, keys)
}

// pgpKey is a PGP key.
type pgpKey struct{ entity *openpgp.Entity }

// newPGPKey returns a key that was made at a time, and expires after a duration unless that is 0.
func newPGPKey(t *testing.T, at time.Time, lifetime time.Duration) pgpKey {
	t.Helper()
	entity, err := openpgp.NewEntity("Ada", "", "ada@example.com", &packet.Config{
		Time: func() time.Time { return at }, Algorithm: packet.PubKeyAlgoEdDSA,
		KeyLifetimeSecs: uint32(lifetime / time.Second),
	})
	require.NoError(t, err)
	return pgpKey{entity}
}

func (k pgpKey) public(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	require.NoError(t, k.entity.Serialize(w))
	require.NoError(t, w.Close())
	return out.Bytes()
}

func (k pgpKey) sign(t *testing.T, message string, config *packet.Config) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, openpgp.ArmoredDetachSign(&out, k.entity, strings.NewReader(message), config))
	return out.String() + "\n"
}

// signSSH signs the unsigned commit.
func signSSH(t *testing.T, signer ssh.Signer, namespace string) string {
	t.Helper()
	signature, err := sshsig.Sign(strings.NewReader(unsigned), signer, sshsig.HashSHA512, namespace)
	require.NoError(t, err)
	return string(sshsig.Armor(signature))
}

func newSSHKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(-time.Hour)
	key, other := newPGPKey(t, now, 0), newPGPKey(t, now, 0)
	expired := newPGPKey(t, now.Add(-48*time.Hour), 24*time.Hour)
	whileValid := &packet.Config{Time: func() time.Time { return now.Add(-47 * time.Hour) }}
	revoked := newPGPKey(t, now, 0)
	fromRevoked := revoked.sign(t, unsigned, nil)
	require.NoError(t, revoked.entity.RevokeKey(packet.KeyCompromised, "stolen", nil))
	short := &packet.Config{SigLifetimeSecs: 60, Time: func() time.Time { return now }}
	var text bytes.Buffer
	require.NoError(t, openpgp.ArmoredDetachSignText(&text, key.entity, strings.NewReader(unsigned), nil))
	signer, public := newSSHKey(t)
	stranger, strangerPublic := newSSHKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	rsaSigner, err := ssh.NewSignerFromKey(rsaKey)
	require.NoError(t, err)
	rsaPublic := string(ssh.MarshalAuthorizedKey(rsaSigner.PublicKey()))

	trusted := map[string][]byte{
		"ada.asc":         append(other.public(t), key.public(t)...),
		"expired.asc":     expired.public(t),
		"revoked.asc":     revoked.public(t),
		"authorized_keys": []byte("# comment\n\n" + public + " ada@laptop\n" + rsaPublic),
	}
	pgp := key.sign(t, unsigned, nil)
	ofSSH := signSSH(t, signer, "git")
	signed := func(signature string) string { return withSignature(unsigned, "gpgsig", signature) }
	tests := map[string]struct {
		commit, err string
	}{
		"PGP":      {signed(pgp), ""},
		"SSH":      {signed(ofSSH), ""},
		"SSH, RSA": {signed(signSSH(t, rsaSigner, "git")), ""},
		"unsigned": {unsigned, "the commit 0123 is not signed: sign it with git commit -S"},
		"PGP, not trusted": {
			signed(newPGPKey(t, now, 0).sign(t, unsigned, nil)), "PGP key that is not trusted",
		},
		"SSH, not trusted": {
			signed(signSSH(t, stranger, "git")), "which is not trusted: add its public",
		},
		"PGP, expired key": {signed(expired.sign(t, unsigned, whileValid)), "a PGP key that has expired"},
		"PGP, revoked key": {signed(fromRevoked), "by a PGP key that was revoked"},
		"PGP, expired signature": {
			signed(key.sign(t, unsigned, short)), "the PGP signature of the commit 0123 has expired",
		},
		"PGP, of text":          {signed(text.String()), "or is one of text"},
		"PGP, tampered message": {strings.Replace(signed(pgp), "Body", "body", 1), "PGP signature does not match"},
		"PGP, tampered tree": {
			strings.Replace(signed(pgp), "tree 6", "tree 7", 1), "PGP signature does not match",
		},
		"PGP, other line ends": {
			strings.Replace(signed(pgp), "Body\n", "Body\r\n", 1), "PGP signature does not match",
		},
		"PGP, more at the end": {signed(pgp) + "more", "PGP signature does not match"},
		"PGP, another header": {
			strings.Replace(signed(pgp), "\ngpgsig", "\nencoding x\ngpgsig", 1), "does not match",
		},
		"PGP, a header after it": {
			strings.Replace(signed(pgp), "\n\nSubject", "\nx y\n\nSubject", 1), "does not match",
		},
		"PGP, damaged": {
			signed("-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"),
			"PGP signature does not match",
		},
		"PGP, empty": {signed("-----BEGIN PGP SIGNATURE-----\n"), "PGP signature does not match"},
		"SSH, tampered": {
			strings.Replace(signed(ofSSH), "Body", "body", 1), "SSH signature does not match",
		},
		"SSH, another purpose": {signed(signSSH(t, signer, "file")), "SSH signature does not match"},
		"SSH, damaged": {
			signed("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"), "does not match",
		},
		"X.509": {signed("-----BEGIN SIGNED MESSAGE-----\n"), "in a format that is not supported"},
		"two signatures": {
			withSignature(signed(pgp), "gpgsig", pgp), "the signature of the commit 0123 is malformed",
		},
		"of SHA-256": {
			withSignature(unsigned, "gpgsig-sha256", pgp), "the signature of the commit 0123 is malformed",
		},
		"in the message":    {unsigned + "\ngpgsig " + pgp, "the commit 0123 is not signed"},
		"of another commit": {signed(key.sign(t, unsigned+"x", nil)), "PGP signature does not match"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := verify(t, test.commit, trusted)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
			require.NotContains(t, err.Error(), "\n")
			var known *Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, NotVerified, known.Reason)
		})
	}
	t.Run("SSH, SHA-1", func(t *testing.T) {
		err := verify(t, signed(signSHA1(t, rsaKey, rsaSigner)), trusted)
		require.ErrorContains(t, err, "the SSH signature does not match the commit 0123")
	})
	t.Run("PGP, weak hash", func(t *testing.T) {
		require.False(t, signsBytes(&packet.Signature{Hash: crypto.SHA1, SigType: packet.SigTypeBinary}))
	})
	t.Run("keys", func(t *testing.T) { testTrustedKeys(t, signed(ofSSH), public, strangerPublic) })
}

// signSHA1 signs the unsigned commit as old versions of OpenSSH did, with an RSA key and SHA-1.
func signSHA1(t *testing.T, key *rsa.PrivateKey, signer ssh.Signer) string {
	t.Helper()
	signature, err := sshsig.Sign(strings.NewReader(unsigned), signer, sshsig.HashSHA512, "git")
	require.NoError(t, err)
	sum := sha512.Sum512([]byte(unsigned))
	signed := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{
		"git", "", "sha512", string(sum[:]),
	})...)
	digest := sha1.Sum(signed)
	blob, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA1, digest[:])
	require.NoError(t, err)
	signature.Signature = &ssh.Signature{Format: ssh.KeyAlgoRSA, Blob: blob}
	return string(sshsig.Armor(signature))
}

func testTrustedKeys(t *testing.T, commit, public, stranger string) {
	t.Helper()
	tests := map[string]struct {
		keys map[string]string
		err  string
	}{
		"authorized_keys":          {map[string]string{"a": public}, ""},
		"two lines":                {map[string]string{"a": stranger + "\n" + public + "\n"}, ""},
		"two values":               {map[string]string{"a": stranger, "b": public}, ""},
		"Windows":                  {map[string]string{"a": "# x\r\n" + public + "\r\n"}, ""},
		"allowed_signers":          {map[string]string{"a": "ada@example.com,*@example.org " + public}, ""},
		"allowed_signers, any":     {map[string]string{"a": "* " + public + " comment"}, ""},
		"allowed_signers, for git": {map[string]string{"a": `ada@example.com namespaces="git" ` + public}, ""},
		"allowed_signers, for files": {
			map[string]string{"a": `ada@example.com namespaces="file" ` + public},
			"a in the Secret with trusted keys, line 1: it has options",
		},
		"allowed_signers, an end": {
			map[string]string{"a": `ada@example.com valid-before="20200101" ` + public}, "it has options",
		},
		"allowed_signers, an authority": {
			map[string]string{"a": "ada@example.com cert-authority " + public}, "it has options",
		},
		"authorized_keys, an end": {
			map[string]string{"a": "\n" + `expiry-time="20200101" ` + public},
			"line 2: it has options, which are not supported",
		},
		"authorized_keys, an authority": {
			map[string]string{"a": "cert-authority " + public}, "it is neither a PGP nor an SSH public key",
		},
		"none":          {nil, "the Secret with trusted keys has none"},
		"only comments": {map[string]string{"a": "# nothing\n"}, "the Secret with trusted keys has none"},
		"text": {
			map[string]string{"a": "hello\n"}, "a in the Secret with trusted keys, line 1: it is neither",
		},
		"half a key":  {map[string]string{"a": "ssh-ed25519 AAAA"}, "it is neither a PGP nor an SSH public key"},
		"only a type": {map[string]string{"a": "ssh-ed25519"}, "it is neither a PGP nor an SSH public key"},
		"a certificate": {
			map[string]string{"a": "ssh-ed25519-cert-v01@openssh.com " + strings.Fields(public)[1]}, "it is neither",
		},
		"private": {
			map[string]string{"a": "-----BEGIN OPENSSH PRIVATE KEY-----\n"},
			"is a private key: replace it with the public key",
		},
		"PGP, damaged": {
			map[string]string{
				"a": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxxxx\n-----END PGP PUBLIC KEY BLOCK-----\n",
			},
			"a in the Secret with trusted keys is not a PGP public key in ASCII armor",
		},
		"PGP, private": {
			map[string]string{"a": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n-----END PGP PRIVATE KEY BLOCK-----\n"},
			"is not a PGP public key",
		},
		"another": {map[string]string{"a": stranger}, "which is not trusted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			keys := map[string][]byte{}
			for name, key := range test.keys {
				keys[name] = []byte(key)
			}
			err := verify(t, commit, keys)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}

// Commits that git signed with gpg and ssh-keygen.
func TestVerifySignaturesOfPrograms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pgp", "ssh-ed", "ssh-rsa"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".commit"))
		require.NoError(t, err)
		public, err := os.ReadFile(filepath.Join("testdata", name+".pub"))
		require.NoError(t, err)
		require.NoError(t, verify(t, string(raw), map[string][]byte{name: public}))
		for i := range raw {
			changed := bytes.Clone(raw)
			changed[i] ^= 1
			if commit, err := parseCommit(changed); err == nil {
				// Some bits of a signature have no meaning, such as the last ones of base64.
				if err := Verify(commit, map[string][]byte{name: public}); err == nil {
					require.Equal(t, payloadOf(t, raw), payloadOf(t, changed), "byte %d of %s", i, name)
				}
			}
		}
	}
}

func payloadOf(t *testing.T, raw []byte) string {
	t.Helper()
	payload, _, err := splitSignature(raw)
	require.NoError(t, err)
	return string(payload)
}

func FuzzSplitSignature(f *testing.F) {
	f.Add([]byte(unsigned), []byte("-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n"))
	f.Add([]byte("tree x"), []byte("x"))
	f.Fuzz(func(t *testing.T, raw, signature []byte) {
		payload, found, err := splitSignature(raw)
		if err != nil {
			return
		}
		if found == nil && !bytes.Equal(payload, raw) {
			t.Fatalf("an unsigned commit changed: %q became %q", raw, payload)
		}
		// A signature that is added can be taken off again.
		headers, _, complete := bytes.Cut(raw, []byte("\n\n"))
		if found != nil || !complete || len(headers) == 0 || bytes.ContainsAny(signature, "\r") ||
			len(bytes.TrimRight(signature, "\n")) == 0 {
			return
		}
		text := string(bytes.TrimRight(signature, "\n"))
		again, extracted, err := splitSignature([]byte(withSignature(string(raw), "gpgsig", text)))
		if err != nil || !bytes.Equal(again, raw) || string(extracted) != text+"\n" {
			t.Fatalf("%q became %q and %q: %v", raw, again, extracted, err)
		}
	})
}
