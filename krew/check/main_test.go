package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/krew/release/archive"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	pack := func(names ...string) []byte {
		files := make([]archive.File, 0, len(names))
		for _, name := range names {
			files = append(files, archive.File{Name: name, Content: []byte(name)})
		}
		var packed bytes.Buffer
		require.NoError(t, archive.Write(&packed, "a.tar.gz", files, time.Unix(0, 0)))
		return packed.Bytes()
	}
	complete, incomplete := pack("kubectl-nstpl", "LICENSE"), pack("kubectl-nstpl")
	for name, test := range map[string]struct {
		described, stored []byte
		want              string
	}{
		"a matching archive": {complete, complete, ""},
		"another archive":    {incomplete, complete, "its sha256 is"},
		"no license":         {incomplete, incomplete, "does not contain LICENSE"},
		"no archive":         {complete, nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := strings.NewReplacer("SUM", fmt.Sprintf("%x", sha256.Sum256(test.described))).Replace(`
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata: {name: nstpl}
spec:
  version: v1.2.3
  homepage: https://example.com
  shortDescription: Short
  platforms:
  - selector: {matchLabels: {os: linux, arch: amd64}}
    uri: https://example.com/a.tar.gz
    sha256: SUM
    bin: kubectl-nstpl
    files: [{from: kubectl-nstpl, to: .}, {from: LICENSE, to: .}]
`)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "nstpl.yaml"), []byte(text), 0o600))
			if test.stored != nil {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "a.tar.gz"), test.stored, 0o600))
			}
			err := check(filepath.Join(dir, "nstpl.yaml"), dir)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}
