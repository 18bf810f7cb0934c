package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/krew/release/archive"
)

func TestWriteIsReproducible(t *testing.T) {
	t.Parallel()
	files := []archive.File{
		{Name: "program", Content: bytes.Repeat([]byte("x"), 1<<16), Executable: true},
		{Name: "LICENSE", Content: []byte("free")},
	}
	modified := time.Unix(1700000000, 0)
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		var first, second, later bytes.Buffer
		require.NoError(t, archive.Write(&first, name, files, modified))
		require.NoError(t, archive.Write(&second, name, files, modified.In(time.FixedZone("elsewhere", 3600))))
		require.Equal(t, first.Bytes(), second.Bytes(), name)
		require.NoError(t, archive.Write(&later, name, files, modified.Add(time.Hour)))
		require.NotEqual(t, first.Bytes(), later.Bytes(), name)
		require.Equal(t, []string{"program", "LICENSE"}, namesIn(t, name, first.Bytes()))
	}
}

// namesIn returns the names of the files in an archive.
func namesIn(t *testing.T, name string, content []byte) []string {
	t.Helper()
	var names []string
	if strings.HasSuffix(name, ".zip") {
		unzipped, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		require.NoError(t, err)
		for _, file := range unzipped.File {
			names = append(names, file.Name)
		}
		return names
	}
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	for unpacked := tar.NewReader(compressed); ; {
		header, err := unpacked.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, header.Name)
	}
}
