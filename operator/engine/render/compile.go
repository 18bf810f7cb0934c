package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// kustomize guards kyaml, which keeps its OpenAPI schema in package variables. It is held for a single build, so that a
// namespace that is populated waits for one build of a template that is vetted, and not for all of them.
var kustomize sync.Mutex

// maxCopied bounds the bytes that the copy operations of a JSON patch add: each can double the object.
const maxCopied = 1 << 20

func init() { jsonpatch.AccumulatedCopySizeLimit = maxCopied }

// Annotations that kustomize takes away and has no exported names for.
const (
	originAnnotation          = "config.kubernetes.io/origin"
	transformationsAnnotation = "alpha.config.kubernetes.io/transformations"
)

// Compile builds a template with the named overlays. The error joins every reason why it can't be. No build starts once
// the context has ended.
func Compile(ctx context.Context, template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	compiled, err := compile(ctx.Err, template, overlays)
	return compiled, named(template, err)
}

func named(template *v1alpha1.NamespaceTemplate, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("template %s: %w", template.Name, err)
}

// endedFunc says why nobody waits for a compilation any more, or returns nil.
type endedFunc func() error

// never is the endedFunc of a compilation for all who ask, which does not end with the request of one of them.
func never() error { return nil }

func compile(ended endedFunc, template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	objects, err := source(template)
	if err != nil {
		return nil, err
	}
	for _, overlay := range template.Spec.Overlays {
		if !slices.Contains(overlays, overlay.Name) {
			continue
		}
		if objects, err = lay(ended, overlay, objects); err != nil {
			return nil, err
		}
	}
	return finish(ended, template, objects)
}

// source returns the objects of a template that no overlay has changed yet.
func source(template *v1alpha1.NamespaceTemplate) ([]*unstructured.Unstructured, error) {
	if err := checkSelectors(template); err != nil {
		return nil, err
	}
	return parse(template)
}

// finish adds to objects what no overlay may change.
func finish(
	ended endedFunc, template *v1alpha1.NamespaceTemplate, objects []*unstructured.Unstructured,
) (*Compiled, error) {
	top, err := topLayer(template.Name)
	if err != nil {
		return nil, err
	}
	if objects, err = build(ended, top, objects); err != nil {
		return nil, err
	}
	compiled := &Compiled{Template: template.Name}
	for _, object := range objects {
		declareRules(object)
		compiled.objects = append(compiled.objects, compiledObject{
			Unstructured: *object,
			needsCreator: needsCreator(object.Object),
		})
	}
	return compiled, nil
}

// declareRules gives a Role without rules an empty list of them. Server-side apply leaves a field alone that is not
// declared, so the Role would keep the rules of an older Role of its name.
func declareRules(object *unstructured.Unstructured) {
	if isRole := object.GetKind() == "Role" && object.GroupVersionKind().Group == rbacGroup; isRole &&
		object.Object["rules"] == nil {
		object.Object["rules"] = []any{}
	}
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
		object, err := parseObject(raw)
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

func parseObject(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw.Raw, &object.Object); err != nil {
		return nil, err
	}
	return object, checkSource(object)
}

func checkSource(object *unstructured.Unstructured) error {
	if object.Object == nil {
		return errors.New("it is empty")
	}
	if err := check(object); err != nil {
		return err
	}
	if metadata, ok := object.Object["metadata"].(map[string]any); ok && metadata["namespace"] != nil {
		return fmt.Errorf("%s sets metadata.namespace: leave it out, the namespace is the one that is populated",
			identityOf(object))
	}
	return nil
}

// clusterScoped are kinds that kustomize doesn't know: those of its own schema are of an older Kubernetes.
var clusterScoped = map[schema.GroupKind]bool{
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:           true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:    true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:         true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}:  true,
	{Group: "authentication.k8s.io", Kind: "SelfSubjectReview"}:                        true,
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:                         true,
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                                    true,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                                  true,
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:                                    true,
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                                  true,
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}:                           true,
	{Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceInitializationConfiguration"}: true,
	{Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceTemplate"}:                    true,
}

// check refuses what can't be an object of a namespace, before and after overlays.
func check(object *unstructured.Unstructured) error {
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		if value, _, err := unstructured.NestedString(object.Object, field...); err != nil || value == "" {
			return fmt.Errorf("%s is missing", strings.Join(field, "."))
		}
	}
	if _, err := schema.ParseGroupVersion(object.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	for _, value := range []string{object.GetAPIVersion(), object.GetKind()} {
		if (Values{}).expand(value) != value {
			return fmt.Errorf("a token stands in %q: apiVersion and kind are the same in every namespace", value)
		}
	}
	id := identityOf(object)
	if _, items := object.Object["items"]; items && strings.HasSuffix(object.GetKind(), "List") {
		return fmt.Errorf("%s is a list: write its items one by one", id)
	}
	kind := object.GroupVersionKind()
	if isClusterScoped(kind) {
		return fmt.Errorf("%s is not namespace-scoped: a template holds objects of a namespace only", id)
	}
	if key := unusableKey(object.Object); key != "" {
		return fmt.Errorf("%s has the key %q: tokens stand in values only, and << is YAML's for merging maps", id, key)
	}
	if err := checkMetadata(object); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
}

func isClusterScoped(kind schema.GroupVersionKind) bool {
	kustomize.Lock()
	defer kustomize.Unlock()
	return clusterScoped[kind.GroupKind()] || resid.NewGvk(kind.Group, kind.Version, kind.Kind).IsClusterScoped()
}

func checkMetadata(object *unstructured.Unstructured) error {
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		if metadata[field] == nil {
			continue
		}
		if _, _, err := unstructured.NestedStringMap(metadata, field); err != nil {
			return fmt.Errorf("metadata%w", err)
		}
	}
	return errors.Join(CheckLabels(object.GetLabels()), CheckAnnotations(object.GetAnnotations()))
}

// CheckLabels refuses labels that nstpl keeps.
func CheckLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isReservedKey(key) {
			return fmt.Errorf("the label %s is set by nstpl itself: leave it out", key)
		}
	}
	return nil
}

// CheckAnnotations refuses annotations that nstpl keeps, and those by which kustomize would leave objects out, rename
// them or lose its books.
func CheckAnnotations(annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if isReservedKey(key) && key != v1alpha1.ReplaceAnnotation && key != v1alpha1.RequiredSCCAnnotation {
			return fmt.Errorf("the annotation %s is set by nstpl itself: leave it out", key)
		}
	}
	own := append([]string{konfig.IgnoredByKustomizeAnnotation, originAnnotation, transformationsAnnotation},
		resource.BuildAnnotations...)
	for _, key := range own {
		if _, ok := annotations[key]; ok {
			return fmt.Errorf("the annotation %s is kustomize's own: leave it out", key)
		}
	}
	return nil
}

// unusableKey returns the first key, in order, that holds a token or that kustomize takes for a merge, or "".
func unusableKey(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if holds(key, NamespaceToken) || holds(key, CreatorToken) || key == "<<" {
				return key
			}
			if found := unusableKey(value[key]); found != "" {
				return found
			}
		}
	case []any:
		for _, item := range value {
			if found := unusableKey(item); found != "" {
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

// lay builds an overlay over objects. An overlay changes the contents of objects and may drop some. It changes neither
// which objects they are nor where.
func lay(
	ended endedFunc, overlay v1alpha1.Overlay, objects []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	err := errors.Join(CheckLabels(overlay.Labels), CheckAnnotations(overlay.Annotations))
	var built []*unstructured.Unstructured
	if err == nil {
		built, err = build(ended, layer(overlay), objects)
	}
	if err != nil {
		return nil, fmt.Errorf("overlay %s: %w", overlay.Name, err)
	}
	var errs []error
	below := objects
	for _, object := range built {
		annotate(object, overlay.Annotations)
		err := checkSource(object)
		if err == nil {
			// Kustomize keeps the order of objects, so two that trade their names are noticed too.
			at := slices.IndexFunc(below, func(o *unstructured.Unstructured) bool { return sameObject(o, object) })
			if at < 0 {
				err = fmt.Errorf("it makes %s of another object: an overlay can't change apiVersion, kind and name",
					describe(object))
			} else {
				below = below[at+1:]
			}
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("overlay %s: %w", overlay.Name, err)
	}
	return built, nil
}

// sameObject reports whether two objects of a template are one and the same, version included.
func sameObject(a, b *unstructured.Unstructured) bool {
	return a.GetAPIVersion() == b.GetAPIVersion() && a.GetKind() == b.GetKind() && a.GetName() == b.GetName()
}

func describe(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s %s", object.GetAPIVersion(), object.GetKind(), object.GetName())
}

// build runs kustomize on objects, in memory and with nothing from elsewhere. What kustomize panics over is refused.
func build(
	ended endedFunc, kustomization types.Kustomization, objects []*unstructured.Unstructured,
) (built []*unstructured.Unstructured, err error) {
	if len(objects) == 0 {
		return nil, nil
	}
	if err := ended(); err != nil {
		return nil, err
	}
	kustomize.Lock()
	defer kustomize.Unlock()
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("kustomize can't build it: %v", reason)
		}
	}()
	fs := filesys.MakeFsInMemory()
	for i, object := range objects {
		name := fmt.Sprintf("object-%03d.yaml", i)
		if err := writeYAML(fs, name, object.Object); err != nil {
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
		object, err := decode(res.YNode())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", res.GetKind(), res.GetName(), err)
		}
		built = append(built, object)
	}
	return built, nil
}

// annotate adds annotations. Kustomize's commonAnnotations would reach into pod templates.
func annotate(object *unstructured.Unstructured, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	all := map[string]string{}
	maps.Copy(all, object.GetAnnotations())
	maps.Copy(all, annotations)
	object.SetAnnotations(all)
}

func layer(overlay v1alpha1.Overlay) types.Kustomization {
	kustomization := types.Kustomization{}
	if len(overlay.Labels) > 0 {
		kustomization.Labels = []types.Label{{Pairs: overlay.Labels}}
	}
	for _, patch := range overlay.Patches {
		kustomization.Patches = append(kustomization.Patches,
			types.Patch{Patch: patch.Patch, Target: target(patch.Target)})
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

// topLayer gives objects what no overlay may change: the label that says which template they are of, and their
// namespace. Service accounts among a binding's subjects get the namespace only where they name none: kustomize's own
// default would move those that name another.
func topLayer(name string) (types.Kustomization, error) {
	namespace, err := json.Marshal(map[string]any{
		"apiVersion":             "builtin",
		"kind":                   "NamespaceTransformer",
		"metadata":               map[string]string{"name": "namespace", "namespace": NamespaceToken},
		"unsetOnly":              true,
		"setRoleBindingSubjects": "allServiceAccounts",
	})
	return types.Kustomization{
		Labels:       []types.Label{{Pairs: map[string]string{v1alpha1.TemplateNameLabel: name}}},
		Transformers: []string{string(namespace)},
	}, err
}

func writeYAML(fs filesys.FileSystem, path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return fs.WriteFile(path, EscapeJSON(data))
}

// decode returns what kustomize built without printing and parsing it, in which a key like "1" comes to harm.
func decode(node *yaml.Node) (*unstructured.Unstructured, error) {
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
