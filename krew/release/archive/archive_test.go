package archive_test

import (
	"bytes"
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
		names, err := archive.Names(name, first.Bytes())
		require.NoError(t, err)
		require.Equal(t, []string{"program", "LICENSE"}, names)
		_, err = archive.Names(name, first.Bytes()[:100])
		require.Error(t, err)
	}
}
