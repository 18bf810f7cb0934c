package source

import (
	"bytes"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// Objects reads objects of any kind. The limits are those of Read.
func Objects(from Filenames, stdin io.Reader) (objects []*unstructured.Unstructured, skipped []string, err error) {
	in, err := readInputs(from, stdin)
	if err != nil {
		return nil, nil, err
	}
	skipped = (&Files{Unread: in.unread}).Skipped()
	if len(in.read) == 0 {
		return nil, skipped, nil
	}
	builder := resource.NewLocalBuilder().Unstructured()
	for _, read := range in.read {
		builder.Stream(bytes.NewReader(read.content), read.name)
	}
	infos, err := builder.Flatten().Do().Infos()
	if err != nil {
		return nil, nil, err
	}
	objects = make([]*unstructured.Unstructured, 0, len(infos))
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, nil, fmt.Errorf("%s: unexpected type %T: not a Kubernetes object", info.Source, info.Object)
		}
		objects = append(objects, object)
	}
	return objects, skipped, nil
}
