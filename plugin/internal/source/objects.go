package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// Objects reads the objects of any kind from files, folders and, where a path is "-", standard input.
func Objects(paths ...string) ([]*unstructured.Unstructured, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Filenames: paths, Recursive: true}).Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(infos))
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s: %T is no object", info.Source, info.Object)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
