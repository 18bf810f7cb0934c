package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// olderOverlay is the kustomization for versions of Kubernetes before 1.36.
const olderOverlay = "overlays/before-1.36"

// beforeMutatingPolicies is the condition under which the chart renders what olderOverlay builds.
const beforeMutatingPolicies = `semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version`

// manifests is the folder of the kustomizations, in memory.
type manifests struct {
	files      filesys.FileSystem
	components []component
}

// component is a folder in the folder components.
type component struct {
	folder string
	// patches reports whether it is a Component of kustomize, which may change objects. Others add objects.
	patches bool
}

func readManifests(dir string) (*manifests, error) {
	read := &manifests{files: filesys.MakeFsInMemory()}
	tree := os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		return read.files.WriteFile("/manifests/"+file, content)
	})
	if err != nil {
		return nil, err
	}
	folders, err := read.files.ReadDir("/manifests/components")
	if err != nil {
		return nil, err
	}
	slices.Sort(folders)
	for _, folder := range folders {
		var kustomization struct {
			Kind string `json:"kind"`
		}
		content, err := read.files.ReadFile(path.Join("/manifests/components", folder, "kustomization.yaml"))
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(content, &kustomization); err != nil {
			return nil, fmt.Errorf("component %s: %w", folder, err)
		}
		read.components = append(read.components, component{folder, kustomization.Kind == "Component"})
	}
	return read, nil
}

type object struct {
	// key identifies the object in all kustomizations.
	key, kind, name string
	// file is the path of the template in the folder templates. It is that of the manifest.
	file string
	// condition is that of a template action; an object without condition is always part of the chart.
	condition string
	// content is the object as kustomize builds it, and tree is the same with nodes that templates evaluate.
	content, tree map[string]any
}

// objects returns all objects of the installation and of its components.
func (m *manifests) objects() ([]*object, error) {
	base, err := m.build("resources: [manifests]\n")
	if err != nil {
		return nil, err
	}
	older, err := m.build("resources: [manifests/" + olderOverlay + "]\n")
	if err != nil {
		return nil, err
	}
	all := slices.Clone(base)
	if all, err = vary(all, base, older, beforeMutatingPolicies); err != nil {
		return nil, fmt.Errorf("%s: %w", olderOverlay, err)
	}
	for _, c := range m.components {
		field := "resources: [manifests, manifests/components/" + c.folder + "]\n"
		if c.patches {
			field = "resources: [manifests]\ncomponents: [manifests/components/" + c.folder + "]\n"
		}
		with, err := m.build(field)
		if err != nil {
			return nil, err
		}
		if all, err = vary(all, base, with, c.value()); err != nil {
			return nil, fmt.Errorf("component %s: %w", c.folder, err)
		}
	}
	for _, o := range all {
		if o.keeps() {
			if err := o.keep(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// build returns the objects of a kustomization next to the folder manifests.
func (m *manifests) build(kustomization string) ([]*object, error) {
	// The origin of an object says which file it is in.
	kustomization += "buildMetadata: [originAnnotations]\n"
	if err := m.files.WriteFile("/kustomization.yaml", []byte(kustomization)); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // like kubectl
	built, err := krusty.MakeKustomizer(options).Run(m.files, "/")
	if err != nil {
		return nil, err
	}
	var all []*object
	for _, r := range built.Resources() {
		o, err := newObject(r)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func newObject(r *resource.Resource) (*object, error) {
	origin, err := r.GetOrigin()
	if err != nil {
		return nil, err
	}
	if err := r.SetOrigin(nil); err != nil {
		return nil, err
	}
	o := &object{key: r.CurId().String(), kind: r.GetKind(), name: r.GetName()}
	// kubectl applies this text. Its folded scalars have more empty lines than the value in memory.
	text, err := r.AsYAML()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(utilyaml.Unmarshal(text, &o.content), utilyaml.Unmarshal(text, &o.tree)); err != nil {
		return nil, err
	}
	file := origin.Path
	if file == "" { // a generator of a kustomization
		file = path.Join(path.Dir(origin.ConfiguredIn), strings.ToLower(o.kind)+".yaml")
	}
	o.file = strings.TrimPrefix(strings.TrimPrefix(file, "manifests/"), "components/")
	return o, nil
}
