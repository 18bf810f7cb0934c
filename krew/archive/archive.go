// Package archive writes archives whose bytes depend on nothing but what is put into them.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// File is a file of an archive.
type File struct {
	Name    string
	Content []byte
	// Program files can be run.
	Program bool
}

func (f File) mode() int64 {
	if f.Program {
		return 0o755
	}
	return 0o644
}

// Write writes a .zip, a .tar or a .tar.gz, as the name ends, with all files of one time and of nobody.
func Write(w io.Writer, name string, files []File, at time.Time) error {
	switch {
	case strings.HasSuffix(name, ".zip"):
		return writeZip(w, files, at)
	case strings.HasSuffix(name, ".tar"):
		return writeTar(w, files, at)
	}
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, files, at), compressed.Close())
}

func writeTar(w io.Writer, files []File, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, file := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: file.Name, Size: int64(len(file.Content)), Mode: file.mode(), ModTime: at,
			Format: tar.FormatUSTAR,
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

func writeZip(w io.Writer, files []File, at time.Time) error {
	archive := zip.NewWriter(w)
	for _, file := range files {
		inside, err := archive.CreateHeader(&zip.FileHeader{Name: file.Name, Method: zip.Deflate, Modified: at.UTC()})
		if err != nil {
			return err
		}
		if _, err := inside.Write(file.Content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// Names returns the names of the files in a .zip or a .tar.gz.
func Names(name string, content []byte) ([]string, error) {
	var names []string
	if strings.HasSuffix(name, ".zip") {
		archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, file := range archive.File {
			names = append(names, file.Name)
		}
		return names, nil
	}
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	archive := tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, header.Name)
	}
}
