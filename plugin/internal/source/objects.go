package source

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// Objects reads objects of any kind from files, directories, and http and https URLs. The path "-" is standard input.
// The limits are those of Read.
func Objects(paths ...string) ([]*unstructured.Unstructured, error) {
	builder := resource.NewLocalBuilder().Unstructured()
	in, empty := inputs{}, true
	for _, path := range paths {
		if isURL(path) {
			builder.FilenameParam(false, &resource.FilenameOptions{Filenames: []string{path}})
			empty = false
			continue
		}
		if err := in.add(path, os.Stdin); err != nil {
			return nil, err
		}
	}
	for _, read := range in.read {
		builder.Stream(bytes.NewReader(read.content), read.name)
	}
	if empty && len(in.read) == 0 {
		return nil, nil
	}
	infos, err := builder.Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(infos))
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s: unexpected type %T: not a Kubernetes object", info.Source, info.Object)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func isURL(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}
