package schema

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// documents has a file for each version of Kubernetes. `make generate` writes them.
//
//go:embed kubernetes/*.json.gz
var documents embed.FS

const extension = ".json.gz"

// The names of schemas begin like this.
const (
	kubernetesTypes = "io.k8s."
	metaTypes       = kubernetesTypes + "apimachinery.pkg.apis.meta.v1."
	objectMeta      = metaTypes + "ObjectMeta"
)

// Versions returns the versions of Kubernetes whose schemas are known, in ascending order.
func Versions() []string { return []string{"1.35", "1.36", "1.37"} }

// Newest returns the last of Versions.
func Newest() string {
	all := Versions()
	return all[len(all)-1]
}

// CheckVersion returns an error for a version of Kubernetes that is neither one of Versions nor a later one.
func CheckVersion(kubernetes string) error {
	if slices.Contains(Versions(), kubernetes) || isLater(kubernetes) {
		return nil
	}
	return fmt.Errorf("the schemas of Kubernetes %q are unknown: use %s, or a later version", kubernetes,
		orList(Versions()))
}

// isLater reports whether a version of Kubernetes, such as 1.38, is later than the newest of Versions.
func isLater(kubernetes string) bool {
	major, minor, _ := strings.Cut(kubernetes, ".")
	number, err := strconv.ParseUint(minor, 10, 16)
	knownMajor, knownMinor, _ := strings.Cut(Newest(), ".")
	known, _ := strconv.ParseUint(knownMinor, 10, 16)
	return major == knownMajor && err == nil && number > known
}

// kubernetes has the schemas of a version of Kubernetes.
type kubernetes struct {
	// published are the schemas by their names, such as io.k8s.api.core.v1.Pod.
	published map[string]*published
	// kinds are the names of the schemas of objects.
	kinds map[schema.GroupVersionKind]string
	// resolving is held while a schema is resolved, and resolved are those that were needed.
	resolving sync.Mutex
	resolved  map[string]*structuralschema.Structural
	// err is why the schemas cannot be read: none of the others is set then.
	err error
}

// published is a schema as API servers publish it, without what validation does not need.
type published struct {
	Type       string                `json:"type"`
	Format     string                `json:"format"`
	Enum       []string              `json:"enum"`
	Required   []string              `json:"required"`
	Ref        string                `json:"$ref"`
	Properties map[string]*published `json:"properties"`
	Items      *published            `json:"items"`
	Values     *published            `json:"additionalProperties"`

	Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// versions reads the schemas of each version at its first use, which takes about ten milliseconds.
var versions = sync.OnceValue(func() map[string]func() *kubernetes {
	all := map[string]func() *kubernetes{}
	for _, version := range Versions() {
		all[version] = sync.OnceValue(func() *kubernetes {
			k, err := read(version)
			if err != nil {
				return &kubernetes{err: fmt.Errorf("read the schemas of Kubernetes %s: %w", version, err)}
			}
			return k
		})
	}
	return all
})

func read(version string) (*kubernetes, error) {
	file, err := documents.Open("kubernetes/" + version + extension)
	if err != nil {
		return nil, err
	}
	uncompressed, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	k := &kubernetes{kinds: map[schema.GroupVersionKind]string{}, resolved: map[string]*structuralschema.Structural{}}
	if err := json.NewDecoder(uncompressed).Decode(&k.published); err != nil {
		return nil, err
	}
	for name, s := range k.published {
		// Kinds without metadata, such as ListOptions, are not the kinds of objects.
		if metadata := s.Properties["metadata"]; metadata == nil || metadata.Ref != objectMeta {
			continue
		}
		for _, kind := range s.Kinds {
			k.kinds[kind] = name
		}
	}
	return k, nil
}

// kind returns the schema of a kind, or nil.
func (k *kubernetes) kind(kind schema.GroupVersionKind) *structuralschema.Structural {
	if name := k.kinds[kind]; name != "" {
		return k.named(name)
	}
	return nil
}

// named returns the schema of a name. Its title is the name, by which rules are found.
func (k *kubernetes) named(name string) *structuralschema.Structural {
	k.resolving.Lock()
	defer k.resolving.Unlock()
	resolved := k.resolve(&published{Ref: name})
	return &resolved
}

// resolve returns a schema in the form of those of custom kinds. Schemas of the same name share their properties.
func (k *kubernetes) resolve(s *published) structuralschema.Structural {
	if s.Ref != "" {
		if resolved := k.resolved[s.Ref]; resolved != nil {
			return *resolved
		}
		// Schemas that contain themselves, which only CustomResourceDefinitions have, are not checked further inside.
		k.resolved[s.Ref] = &structuralschema.Structural{}
		resolved := k.resolve(k.published[s.Ref])
		resolved.Title = s.Ref
		k.resolved[s.Ref] = &resolved
		return resolved
	}
	resolved := structuralschema.Structural{
		Generic:         structuralschema.Generic{Type: s.Type},
		ValueValidation: &structuralschema.ValueValidation{Required: s.Required},
	}
	if s.Format == "byte" || s.Format == "int32" {
		resolved.Title = kubernetesTypes + s.Format
	}
	if len(s.Enum) > 0 {
		resolved.ValueValidation.Enum = append(resolved.ValueValidation.Enum, structuralschema.JSON{Object: ""})
	}
	for _, value := range s.Enum { // the API server reads "" as a missing value
		resolved.ValueValidation.Enum = append(resolved.ValueValidation.Enum, structuralschema.JSON{Object: value})
	}
	if s.Items != nil {
		items := k.resolve(s.Items)
		resolved.Items = &items
	}
	if s.Values != nil {
		values := k.resolve(s.Values)
		resolved.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: &values}
	}
	if len(s.Properties) > 0 {
		resolved.Properties = make(map[string]structuralschema.Structural, len(s.Properties))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		resolved.Properties[name] = k.resolve(s.Properties[name])
	}
	resolved.XPreserveUnknownFields = s.Properties == nil && s.Values == nil
	return resolved
}
