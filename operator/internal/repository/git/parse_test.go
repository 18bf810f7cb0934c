package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/test/gittest"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ endpoint, path, err string }{
		"https://github.com/corp/policies":       {"github.com:443", "/corp/policies", ""},
		"https://git.corp:8443/a%20b.git":        {"git.corp:8443", "/a b.git", ""},
		"HTTPS://[2001:db8::1]/a":                {"[2001:db8::1]:443", "/a", ""},
		"ssh://git@github.com/corp/policies.git": {"github.com:22", "/corp/policies.git", ""},
		"ssh://git@host:2222/~ada/policies":      {"host:2222", "/~ada/policies", ""},
		"github.com/corp/policies":               {err: "begins with neither https:// nor ssh://: write https://HOST/PATH"},
		"http://ada:hunter2@github.com/x":        {err: "begins with neither"},
		"git@github.com:corp/policies.git":       {err: "cannot be parsed"},
		"https://ada:hunter2@github.com/x":       {err: "contains credentials: remove them from the URL"},
		"https://token@github.com/x":             {err: "contains credentials"},
		"https://ada:hunter2@git hub.com/x":      {err: "cannot be parsed"},
		"https://ada:hunter2@[github.com/x":      {err: "cannot be parsed"},
		"https://github.com/%zz:hunter2":         {err: "cannot be parsed"},
		"ssh://git:hunter2@github.com/x":         {err: "contains a password: remove it, and put a private key into"},
		"ssh://github.com/x":                     {err: "does not name a user: write ssh://git@github.com/…"},
		"https:///x":                             {err: "lacks the host or the path"},
		"https://github.com":                     {err: "lacks the host or the path"},
		"https://github.com//":                   {err: "lacks the host or the path"},
		"https://github.com/x?a=b":               {err: "has a query or fragment"},
		"https://github.com/x#main":              {err: "has a query or fragment"},
		"ssh://git@host/a%0ab":                   {err: "contains an encoded control character"},
		"https://github.com/corp/policies\nx":    {err: "cannot be parsed"},
		"ssh://-oProxyCommand=id@host/x":         {"host:22", "/x", ""},
		"https://github.com:99999999/corp/a":     {"github.com:99999999", "/corp/a", ""},
	}
	for text, test := range tests {
		a, err := parseAddress(text)
		if test.err == "" {
			require.NoError(t, err, text)
			require.Equal(t, test.endpoint, a.endpoint())
			require.Equal(t, test.path, a.path)
			continue
		}
		require.ErrorContains(t, err, test.err, text)
		require.NotContains(t, err.Error(), "hunter2")
		var known *Error
		require.ErrorAs(t, err, &known)
		require.Equal(t, InvalidConfiguration, known.Reason)
	}
}

func TestRemotePath(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"ssh://git@h/a/b.git":       "'/a/b.git'",
		"ssh://git@h/~ada/b":        "'~ada/b'",
		"ssh://git@h/it's;%20id!":   `'/it'\''s; id'\!''`,
		"ssh://git@h/--upload-pack": "'/--upload-pack'",
	} {
		a, err := parseAddress(url)
		require.NoError(t, err)
		require.Equal(t, want, a.remotePath())
	}
}

func TestReferenceCheck(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0a", 20)
	for want, references := range map[string][]Reference{
		"": {
			{Branch: "main"}, {Branch: "team/a"}, {Tag: "v1.2.3"}, {Branch: "feature/ä#1"}, {Commit: hash},
			{Branch: "a@b"},
		},
		"exactly one of branch, tag and commit": {{}, {Branch: "a", Tag: "b"}, {Tag: "a", Commit: hash}},
		"is not a valid name of a branch": {
			{Branch: "a b"}, {Branch: "a..b"}, {Branch: "a\nb"}, {Branch: "-a"}, {Branch: "a/"}, {Branch: "a.lock"},
			{Branch: "a^{}"}, {Branch: "a*"}, {Branch: "@"}, {Branch: "/a"}, {Branch: strings.Repeat("a", 300)},
			{Branch: "a/.b"}, {Branch: "a//b"}, {Branch: "a@{1}"}, {Branch: "a\x00"},
		},
		"is not a valid name of a tag":              {{Tag: "a~1"}},
		`begins with refs/: write only the name of`: {{Branch: "refs/heads/main"}, {Tag: "refs/tags/v1"}},
		"is not a commit: write all 40 hexadecimal d": {
			{Commit: "abc123"}, {Commit: strings.ToUpper(hash)}, {Commit: "HEAD"},
		},
	} {
		for _, r := range references {
			err := r.check()
			if want == "" {
				require.NoError(t, err, "%q", r)
			} else {
				require.ErrorContains(t, err, want, "%q", r)
			}
		}
	}
}

func TestParseCredentials(t *testing.T) {
	t.Parallel()
	encryptedKey := string(gittest.NewKey(t, "secret").Private)
	tests := map[string]struct {
		url  string
		data map[string]string
		err  string
	}{
		"nothing for https": {"https://h/x", nil, ""},
		"basic": {
			"https://h/x", map[string]string{"username": "u", "password": "p", "other": "x"}, "",
		},
		"token": {"https://h/x", map[string]string{"bearerToken": "t\r\n"}, ""},
		"no password": {
			"https://h/x", map[string]string{"username": "u"}, "only one of username and password: set both",
		},
		"no username": {
			"https://h/x", map[string]string{"password": "p"}, "only one of username and password",
		},
		"both": {
			"https://h/x", map[string]string{"username": "u", "password": "p", "bearerToken": "t"}, "remove one",
		},
		"a colon": {
			"https://h/x", map[string]string{"username": "u:v", "password": "p"}, "contains a colon",
		},
		"another line": {
			"https://h/x", map[string]string{"bearerToken": "hunter2\r\nHost: x"}, "contains a control character",
		},
		"not a certificate": {
			"https://h/x", map[string]string{"ca.crt": "x"}, "ca.crt in the Secret has no certificate in PEM",
		},
		"for ssh": {"https://h/x", map[string]string{"identity": "x", "known_hosts": "x"},
			"has no credentials for https"},
		"nothing for ssh": {"ssh://u@h/x", nil,
			"the Secret has no private key for ssh: set identity, and known_hosts for h"},
		"for https": {"ssh://u@h/x", map[string]string{"username": "u", "password": "p"},
			"has no private key for ssh"},
		"no known_hosts": {
			"ssh://u@h/x", map[string]string{"identity": "x"}, "has no known_hosts, so the server cannot be",
		},
		"empty known_hosts": {
			"ssh://u@h/x", map[string]string{"identity": "x", "known_hosts": "\n"}, "has no known_hosts",
		},
		"not a key": {
			"ssh://u@h/x", map[string]string{"identity": "hunter2", "known_hosts": "x"}, "is not a private key that",
		},
		"encrypted": {
			"ssh://u@h/x", map[string]string{"identity": encryptedKey, "known_hosts": "x"},
			"is encrypted: set password",
		},
		"encrypted, wrong": {
			"ssh://u@h/x", map[string]string{"identity": encryptedKey, "known_hosts": "x", "password": "hunter2"},
			"is not the passphrase",
		},
	}
	for name, test := range tests {
		data := map[string][]byte{}
		for key, value := range test.data {
			data[key] = []byte(value)
		}
		a, err := parseAddress(test.url)
		require.NoError(t, err)
		_, err = parseCredentials(a, data)
		if test.err == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.err, name)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := New(Options{
		URL: "ssh://u@h/x", Reference: Reference{Branch: "main"}, Dir: t.TempDir(), Secret: map[string][]byte{
			"identity": gittest.NewKey(t, "").Private, "known_hosts": []byte("h ssh-rsa xxx"),
		},
	})
	require.ErrorContains(t, err, "known_hosts in the Secret has an invalid line")
}

func packets(lines ...string) string {
	var out strings.Builder
	for _, line := range lines {
		if line == "" {
			out.WriteString("0000")
		} else {
			fmt.Fprintf(&out, "%04x%s", len(line)+4, line)
		}
	}
	return out.String()
}

func TestReadAdvertisement(t *testing.T) {
	t.Parallel()
	a, b, c := strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 40)
	tests := map[string]struct {
		text string
		want advertisement
		err  error
	}{
		"https": {
			packets("# service=git-upload-pack\n", "", a+" HEAD\x00x y=z shallow\n", b+" refs/heads/main\n", ""),
			advertisement{capabilities: []string{"x", "y=z", "shallow"}, references: 2, tip: plumbing.NewHash(b),
				head: plumbing.NewHash(a), tag: plumbing.NewHash(b)}, nil,
		},
		"ssh, without line feeds": {
			packets(b+" refs/heads/main\x00x", c+" refs/heads/x", "shallow "+a, ""),
			advertisement{capabilities: []string{"x"}, references: 2, tip: plumbing.NewHash(b),
				want: plumbing.NewHash(c), tag: plumbing.NewHash(c)}, nil,
		},
		"an annotated tag": {
			packets(a+" refs/heads/main\x00\n", b+" refs/heads/main^{}\n", ""),
			advertisement{references: 2, tip: plumbing.NewHash(b), tag: plumbing.NewHash(a)}, nil,
		},
		"an annotated tag of the commit": {
			packets(a+" refs/tags/x\x00\n", c+" refs/tags/x^{}\n", b+" refs/heads/main\n", ""),
			advertisement{references: 3, tip: plumbing.NewHash(b), tag: plumbing.NewHash(b), want: plumbing.NewHash(a)}, nil,
		},
		"empty, with capabilities": {
			packets(strings.Repeat("0", 40)+" capabilities^{}\x00x\n", ""), advertisement{capabilities: []string{"x"}},
			nil,
		},
		"empty":            {packets("# service=git-upload-pack\n", "", ""), advertisement{}, nil},
		"not a hash":       {packets("hello world\n", ""), advertisement{}, errNotGit},
		"a short hash":     {packets(a[1:]+" refs/heads/main\n", ""), advertisement{}, errNotGit},
		"no name":          {packets(a+"\n", ""), advertisement{}, errNotGit},
		"version 2":        {packets("version 2\n", ""), advertisement{}, errNotGit},
		"no flush":         {packets("# service=git-upload-pack\n", a+" HEAD\x00\n"), advertisement{}, errNotGit},
		"cut":              {packets(a + " HEAD\x00\n"), advertisement{}, io.ErrUnexpectedEOF},
		"cut in a line":    {packets(a + " HEAD\x00\n")[:30], advertisement{}, io.ErrUnexpectedEOF},
		"nothing at all":   {"", advertisement{}, io.ErrUnexpectedEOF},
		"SHA-256":          {packets(strings.Repeat("a", 64)+" HEAD\x00\n", ""), advertisement{}, errAny},
		"an error":         {packets("ERR no\n"), advertisement{}, errAny},
		"not even packets": {"zzzz", advertisement{}, errAny},
	}
	for name, test := range tests {
		got, err := readAdvertisement(strings.NewReader(test.text), "refs/heads/main", plumbing.NewHash(c))
		switch {
		case errors.Is(test.err, errAny):
			require.Error(t, err, name)
		case test.err != nil:
			require.ErrorIs(t, err, test.err, name)
		default:
			require.NoError(t, err, name)
			if len(got.capabilities) == 0 {
				got.capabilities = nil
			}
			require.Equal(t, &test.want, got, name)
		}
	}
	short := files.Bounded(t.Context(), strings.NewReader(packets(a+" HEAD\x00\n", "")), 20, errAny)
	_, err := readAdvertisement(short, "", plumbing.ZeroHash)
	require.ErrorIs(t, err, errAny)
}

var errAny = errors.New("any")

func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	a := strings.Repeat("a", 40)
	all := &advertisement{capabilities: []string{"shallow", "side-band-64k", "multi_ack_detailed"}}
	tests := map[string]struct {
		offer *advertisement
		text  string
		want  string
		err   string
	}{
		"shallow, multiplexed": {
			all, packets("shallow "+a, "", "NAK\n", "\x02progress", "\x01PA", "\x01CK", ""), "PACK", "",
		},
		"no depth":         {&advertisement{}, packets("NAK\n", "\x01PACK", ""), "PACK", ""},
		"no multiplexing":  {&advertisement{}, packets("NAK\n") + "PACK", "", "invalid pkt-len"},
		"two ACKs":         {all, packets("", "ACK "+a+" common\n", "ACK "+a+"\n", "\x01PACK", ""), "PACK", ""},
		"an error":         {all, packets("", "NAK\n", "\x01PA", "\x03broken\n"), "", "unexpected error: broken"},
		"an error at once": {all, packets("ERR upload-pack: not our ref"), "", "not our ref"},
		"nonsense":         {all, packets("hello"), "", "not in the protocol"},
		"a flush too many": {all, packets("", ""), "", "not in the protocol"},
		"nothing":          {all, "", "", "unexpected EOF"},
		"cut":              {all, packets("shallow " + a), "", "unexpected EOF"},
	}
	for name, test := range tests {
		q := &request{want: plumbing.NewHash(a), depth: 1, offer: test.offer}
		stream, err := q.decode(strings.NewReader(test.text))
		var content []byte
		if err == nil {
			content, err = io.ReadAll(stream)
		}
		if test.err != "" {
			require.ErrorContains(t, err, test.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.want, string(content), name)
	}
}

func TestParseCommit(t *testing.T) {
	t.Parallel()
	tree := "tree " + strings.Repeat("a", 40) + "\n"
	people := "author A <a@b> 1 +0000\ncommitter C <c@d> 2 +0100\n"
	tests := map[string]struct {
		raw    string
		author string
		when   time.Time
		title  string
		err    bool
	}{
		"all": {
			tree + "parent x\n" + people + "\nHello\nBody", "A <a@b>", time.Unix(2, 0).UTC(), "Hello", false,
		},
		"no message":         {tree + people, "A <a@b>", time.Unix(2, 0).UTC(), "", false},
		"empty lines first":  {tree + people + "\n\n\nHello", "A <a@b>", time.Unix(2, 0).UTC(), "Hello", false},
		"not UTF-8":          {tree + people + "\nH\xffllo", "A <a@b>", time.Unix(2, 0).UTC(), "H\ufffdllo", false},
		"a malformed author": {tree + "author x\ncommitter y\n\nm", "x", time.Time{}, "m", false},
		"no name": {
			tree + "author <a@b> 1 +0000\ncommitter <a@b> 1 +0000\n", "<a@b>", time.Unix(1, 0).UTC(), "", false,
		},
		"tabs":               {tree + people + "\na\tb\rc", "A <a@b>", time.Unix(2, 0).UTC(), "a bc", false},
		"no tree":            {people + "\nHello", "", time.Time{}, "", true},
		"the tree is second": {"parent x\n" + tree + people, "", time.Time{}, "", true},
		"two trees":          {tree + tree + people, "", time.Time{}, "", true},
		"a short tree":       {"tree abc\n" + people, "", time.Time{}, "", true},
		"two authors":        {tree + people + "author x\n", "", time.Time{}, "", true},
		"nothing":            {"", "", time.Time{}, "", true},
		"milliseconds instead of seconds": {
			tree + "author x\ncommitter x <y> 1700000000000 +0000\n", "x", time.Time{}, "", false,
		},
		"a time out of range": {
			tree + "author x\ncommitter x <y> 9999999999999999999999 +0000\n", "x", time.Time{}, "", false,
		},
	}
	for name, test := range tests {
		c, err := parseCommit([]byte(test.raw))
		if test.err {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.author, c.Author, name)
		require.True(t, test.when.Equal(c.When), name)
		require.Equal(t, test.title, c.Subject, name)
	}
}

func TestParseTree(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("h", 20)
	for text, want := range map[string]int{
		"":                    0,
		"100644 a\x00" + hash: 1,
		"100644 a\x00" + hash + "40000 b\x00" + hash: 2,
		"100644 \x00" + hash:                         -1,
		"100644 .\x00" + hash:                        -1,
		"100644 ..\x00" + hash:                       -1,
		"100644 a/b\x00" + hash:                      -1,
		"100644 a\x00" + hash + "40000 a\x00" + hash: -1,
		"100644 a\x00" + hash[1:]:                    -1,
		"100648 a\x00" + hash:                        -1,
		" a\x00" + hash:                              -1,
		"100644a\x00" + hash:                         -1,
		"100644 a":                                   -1,
	} {
		entries, err := parseTree([]byte(text))
		if want < 0 {
			require.Error(t, err, "%q", text)
		} else {
			require.NoError(t, err, "%q", text)
			require.Len(t, entries, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	a := strings.Repeat("a", 40)
	f.Add([]byte(packets("# service=git-upload-pack\n", "", a+" HEAD\x00x shallow\n", a+" refs/heads/main\n", "")))
	f.Add([]byte(packets("shallow "+a, "", "NAK\n", "\x01PACK", "")))
	f.Add([]byte("100644 a\x00" + a[:20]))
	f.Add([]byte(unsigned))
	f.Add([]byte("ssh://git@host/path"))
	f.Add([]byte("ada@example.com namespaces=\"git\" ssh-ed25519 AAAA"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := readAdvertisement(bytes.NewReader(data), "refs/heads/main", plumbing.ZeroHash); err == nil {
			q := &request{want: plumbing.ZeroHash, depth: 1, offer: a}
			if bytes.Contains(q.encode(), []byte("have ")) {
				t.Fatal("a request names an object")
			}
		}
		q := &request{depth: 1, offer: &advertisement{capabilities: []string{"shallow", "side-band-64k"}}}
		if stream, err := q.decode(bytes.NewReader(data)); err == nil {
			_, _ = io.Copy(io.Discard, stream)
		}
		if entries, err := parseTree(data); err == nil {
			for _, e := range entries {
				if e.name == "" || e.name == ".." || strings.Contains(e.name, "/") {
					t.Fatalf("the name %q is accepted", e.name)
				}
			}
		}
		if c, err := parseCommit(data); err == nil && strings.ContainsAny(c.Subject+c.Author, "\x1b\n\r\u202e") {
			t.Fatalf("%q and %q have control characters", c.Subject, c.Author)
		}
		if a, err := parseAddress(string(data)); err == nil {
			if strings.ContainsAny(a.remotePath(), "\n\x00") || a.scheme == "http" || a.host == "" {
				t.Fatalf("%q is accepted", data)
			}
		}
		_, _ = parseSSHLine(string(data))
	})
}
