// Package archive writes reproducible archives: the same files and time give the same bytes.
package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"time"
)

// File is a file in an archive.
type File struct {
	Name    string
	Content []byte
	// Executable files have the mode 0755, other files 0644.
	Executable bool
}

func (f File) mode() int64 {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// Write writes files as a .zip, .tar or .tar.gz archive, depending on the suffix of name. All files have the given
// modification time and no owner.
func Write(w io.Writer, name string, files []File, modified time.Time) error {
	switch {
	case strings.HasSuffix(name, ".zip"):
		return writeZip(w, files, modified)
	case strings.HasSuffix(name, ".tar"):
		return writeTar(w, files, modified)
	}
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, files, modified), compressed.Close())
}

func writeTar(w io.Writer, files []File, modified time.Time) error {
	archive := tar.NewWriter(w)
	for _, file := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: file.Name, Size: int64(len(file.Content)), Mode: file.mode(),
			ModTime: modified,
			Format:  tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(file.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeZip(w io.Writer, files []File, modified time.Time) error {
	archive := zip.NewWriter(w)
	for _, file := range files {
		content, err := archive.CreateHeader(&zip.FileHeader{
			Name: file.Name, Method: zip.Deflate, Modified: modified.UTC(),
		})
		if err != nil {
			return err
		}
		if _, err := content.Write(file.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}
