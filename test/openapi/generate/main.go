// Command generate writes the schemas of the kinds of Kubernetes, as its API servers publish them, into the folder that
// package schema of the engine embeds: generate FOLDER VERSION....
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/openapi"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: generate FOLDER VERSION...")
		os.Exit(2)
	}
	for _, version := range os.Args[2:] {
		if err := generate(context.Background(), os.Args[1], version); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

// generate writes the schemas of a version, such as 1.37.2, into a file such as 1.37.json.gz.
func generate(ctx context.Context, folder, version string) (err error) {
	cluster, err := controlplane.Start(ctx, controlplane.Options{
		Version: version, APIServerArgs: []string{"--runtime-config=api/all=true"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	schemas, err := openapi.Read(ctx, cluster.RESTConfig())
	if err != nil {
		return err
	}
	if err := openapi.Probe(ctx, cluster.RESTConfig(), schemas); err != nil {
		return err
	}
	data, err := json.Marshal(schemas)
	if err != nil {
		return err
	}
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := writer.Write(data); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	minor := version[:strings.LastIndex(version, ".")]
	return os.WriteFile(filepath.Join(folder, minor+".json.gz"), compressed.Bytes(), 0o644)
}
