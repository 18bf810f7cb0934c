package render

import (
	"encoding/json"
	"fmt"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// kustomizeLock guards kyaml, which keeps its OpenAPI schema in package variables. It is held for one build at a time:
// vetting a template takes many builds, and populating a namespace must not wait for all of them.
var kustomizeLock sync.Mutex

// maxCopied is how many bytes the copy operations of a JSON patch may add to an object. Each of them can double its
// size.
const maxCopied = 1 << 16

func init() { jsonpatch.AccumulatedCopySizeLimit = maxCopied }

// build runs kustomize on objects, in memory. It reads nothing else, and returns an error if kustomize panics.
func build(
	canceled canceledFunc, kustomization types.Kustomization, objects []*unstructured.Unstructured,
) (built []*unstructured.Unstructured, err error) {
	if len(objects) == 0 {
		return nil, nil
	}
	kustomizeLock.Lock()
	defer kustomizeLock.Unlock()
	if err := canceled(); err != nil { // asked now, because other builds may have taken long
		return nil, err
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("kustomize panicked: %v", reason)
		}
	}()
	fs := filesys.MakeFsInMemory()
	quoted := newQuotedIntegers(kustomization, objects)
	kustomization.Patches = quoted.quotePatches(kustomization.Patches)
	for i, object := range objects {
		name := fmt.Sprintf("object-%03d.yaml", i)
		if err := writeYAML(fs, name, quoted.quote(object.Object)); err != nil {
			return nil, err
		}
		kustomization.Resources = append(kustomization.Resources, name)
	}
	if err := writeYAML(fs, "kustomization.yaml", kustomization); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, ".")
	if err != nil {
		return nil, err
	}
	for _, res := range resources.Resources() {
		object, err := decodeObject(res.YNode())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", res.GetKind(), res.GetName(), err)
		}
		object.Object, _ = quoted.unquote(object.Object).(map[string]any)
		DropNulls(object.Object)
		built = append(built, object)
	}
	return built, nil
}

func writeYAML(fs filesys.FileSystem, path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return fs.WriteFile(path, EscapeJSON(data))
}

// decodeObject returns an object that kustomize built. It does not print and parse the YAML, which would change keys
// such as "1".
func decodeObject(node *yaml.Node) (*unstructured.Unstructured, error) {
	value, err := decodeNode(node)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, utiljson.Unmarshal(data, &object.Object)
}

func decodeNode(node *yaml.Node) (value any, err error) {
	switch node.Kind {
	case yaml.MappingNode:
		fields := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content) && err == nil; i += 2 {
			fields[node.Content[i].Value], err = decodeNode(node.Content[i+1])
		}
		return fields, err
	case yaml.SequenceNode:
		items := make([]any, len(node.Content))
		for i := 0; i < len(items) && err == nil; i++ {
			items[i], err = decodeNode(node.Content[i])
		}
		return items, err
	}
	switch node.ShortTag() {
	case yaml.NodeTagNull, yaml.NodeTagBool, yaml.NodeTagInt, yaml.NodeTagFloat:
		err = node.Decode(&value)
		return value, err
	}
	return node.Value, nil
}
