package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// kustomize is one at a time in a process: kyaml keeps its OpenAPI schema in package variables.
var kustomize sync.Mutex

// Compile builds a template with the named overlays. The error joins every reason why it can't be.
func Compile(template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	compiled, err := compile(template, overlays)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", template.Name, err)
	}
	return compiled, nil
}

func compile(template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	if err := checkSelectors(template); err != nil {
		return nil, err
	}
	sources, err := parse(template)
	if err != nil {
		return nil, err
	}
	compiled := &Compiled{Template: template.Name}
	if len(sources) == 0 {
		return compiled, nil
	}
	built, err := build(template, sources, overlays)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, resource := range built.Resources() {
		object, err := decode(resource)
		if err == nil {
			err = check(object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("with overlays %v: %s %s: %w", overlays, resource.GetKind(), resource.GetName(), err))
			continue
		}
		compiled.objects = append(compiled.objects, compiledObject{
			Unstructured: *object,
			needsCreator: needsCreator(object.Object),
		})
	}
	return compiled, errors.Join(errs...)
}

// checkSelectors refuses selectors that would otherwise match nothing without a word.
func checkSelectors(template *v1alpha1.NamespaceTemplate) error {
	_, err := match.Selector(template.Spec.Namespaces)
	errs := []error{err}
	for _, overlay := range template.Spec.Overlays {
		if _, err := match.Selector(overlay.Namespaces); err != nil {
			errs = append(errs, fmt.Errorf("overlay %s: %w", overlay.Name, err))
		}
	}
	return errors.Join(errs...)
}

// parse decodes and checks the objects of a template as its author wrote them.
func parse(template *v1alpha1.NamespaceTemplate) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	var errs []error
	seen := map[identity]bool{}
	for i, raw := range template.Spec.Templates {
		object := &unstructured.Unstructured{}
		err := utiljson.Unmarshal(raw.Raw, &object.Object)
		if err == nil {
			err = checkSource(object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.templates[%d]: %w", i, err))
			continue
		}
		id := identityOf(object)
		if seen[id] {
			errs = append(errs, fmt.Errorf("spec.templates[%d]: %s is there twice", i, id))
		}
		seen[id] = true
		objects = append(objects, object)
	}
	return objects, errors.Join(errs...)
}

func checkSource(object *unstructured.Unstructured) error {
	if object.Object == nil {
		return errors.New("it is empty")
	}
	if err := check(object); err != nil {
		return err
	}
	if metadata, ok := object.Object["metadata"].(map[string]any); ok && metadata["namespace"] != nil {
		return fmt.Errorf("%s sets metadata.namespace: leave it out, the namespace is the one that is populated", identityOf(object))
	}
	return nil
}

// check refuses what can't be an object of a namespace, before and after overlays.
func check(object *unstructured.Unstructured) error {
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		if value, _, err := unstructured.NestedString(object.Object, field...); err != nil || value == "" {
			return fmt.Errorf("%s is missing", strings.Join(field, "."))
		}
	}
	id := identityOf(object)
	if strings.HasSuffix(object.GetKind(), "List") && object.Object["items"] != nil {
		return fmt.Errorf("%s is a list: write its items one by one", id)
	}
	kind := object.GroupVersionKind()
	if (resid.Gvk{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}).IsClusterScoped() {
		return fmt.Errorf("%s is not namespace-scoped: a template holds objects of a namespace only", id)
	}
	if key := tokenInKey(object.Object); key != "" {
		return fmt.Errorf("%s has a token in the key %q: tokens stand in values only", id, key)
	}
	return nil
}

func tokenInKey(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if holds(key, NamespaceToken) || holds(key, CreatorToken) {
				return key
			}
			if found := tokenInKey(field); found != "" {
				return found
			}
		}
	case []any:
		for _, item := range value {
			if found := tokenInKey(item); found != "" {
				return found
			}
		}
	}
	return ""
}

func needsCreator(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if needsCreator(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, needsCreator)
	case string:
		return holds(value, CreatorToken)
	}
	return false
}

// build stacks kustomizations in memory: the objects, an overlay on another, and on top what an overlay may not change:
// the label that says which template an object is of, and its namespace.
func build(template *v1alpha1.NamespaceTemplate, objects []*unstructured.Unstructured, overlays []string) (resmap.ResMap, error) {
	fs := filesys.MakeFsInMemory()
	base := types.Kustomization{}
	for i, object := range objects {
		name := fmt.Sprintf("object-%03d.yaml", i)
		if err := writeYAML(fs, "base/"+name, object.Object); err != nil {
			return nil, err
		}
		base.Resources = append(base.Resources, name)
	}
	if err := writeYAML(fs, "base/kustomization.yaml", base); err != nil {
		return nil, err
	}
	below := "../base"
	for i, overlay := range template.Spec.Overlays {
		if !slices.Contains(overlays, overlay.Name) {
			continue
		}
		dir := fmt.Sprintf("overlay-%03d", i)
		if err := writeYAML(fs, dir+"/kustomization.yaml", layer(overlay, below)); err != nil {
			return nil, err
		}
		below = "../" + dir
	}
	top, err := topLayer(template.Name, below)
	if err != nil {
		return nil, err
	}
	if err := writeYAML(fs, "top/kustomization.yaml", top); err != nil {
		return nil, err
	}
	kustomize.Lock()
	defer kustomize.Unlock()
	return krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, "top")
}

func layer(overlay v1alpha1.Overlay, below string) types.Kustomization {
	kustomization := types.Kustomization{
		Resources:         []string{below},
		CommonAnnotations: overlay.Annotations,
	}
	if len(overlay.Labels) > 0 {
		kustomization.Labels = []types.Label{{Pairs: overlay.Labels}}
	}
	for _, patch := range overlay.Patches {
		kustomization.Patches = append(kustomization.Patches, types.Patch{Patch: patch.Patch, Target: target(patch.Target)})
	}
	for _, image := range overlay.Images {
		kustomization.Images = append(kustomization.Images, types.Image{
			Name: image.Name, NewName: image.NewName, NewTag: image.NewTag, Digest: image.Digest,
		})
	}
	for _, replica := range overlay.Replicas {
		kustomization.Replicas = append(kustomization.Replicas, types.Replica{Name: replica.Name, Count: replica.Count})
	}
	return kustomization
}

func target(t *v1alpha1.PatchTarget) *types.Selector {
	if t == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: t.Group, Version: t.Version, Kind: t.Kind},
			Name: t.Name,
		},
		LabelSelector:      t.LabelSelector,
		AnnotationSelector: t.AnnotationSelector,
	}
}

// topLayer gives service accounts among a binding's subjects the namespace only where they name none: kustomize's own
// default would move those that name another.
func topLayer(name, below string) (types.Kustomization, error) {
	namespace, err := json.Marshal(map[string]any{
		"apiVersion":             "builtin",
		"kind":                   "NamespaceTransformer",
		"metadata":               map[string]string{"name": "namespace", "namespace": NamespaceToken},
		"unsetOnly":              true,
		"setRoleBindingSubjects": "allServiceAccounts",
	})
	return types.Kustomization{
		Resources:    []string{below},
		Labels:       []types.Label{{Pairs: map[string]string{v1alpha1.TemplateNameLabel: name}}},
		Transformers: []string{string(namespace)},
	}, err
}

// writeYAML writes value as JSON, which is YAML but for characters that YAML has as escapes only.
func writeYAML(fs filesys.FileSystem, path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(data) {
		if r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&text, `\u%04x`, r)
		} else {
			text.WriteRune(r)
		}
	}
	return fs.WriteFile(path, []byte(text.String()))
}

func decode(resource json.Marshaler) (*unstructured.Unstructured, error) {
	data, err := resource.MarshalJSON()
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, utiljson.Unmarshal(data, &object.Object)
}
