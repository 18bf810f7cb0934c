package schema

import (
	"cmp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Problem is why the API server would reject an object.
type Problem struct {
	// Path is the path of the field in the object, such as spec.hard[pods] or spec.containers[0].image. It is "" for
	// the object itself.
	Path string
	// Message says what is wrong with the field.
	Message string
	// Remedy says what to do about it, or is "".
	Remedy string
	// Unchecked is true if the field was not checked, because a version of Kubernetes after the newest of Versions may
	// have added it or its value. The message says so.
	Unchecked bool
}

// Catalog holds the schemas of kinds. It is safe for concurrent use. New returns a Catalog; the zero value knows the
// kinds of Kubernetes only.
type Catalog struct {
	// KubernetesVersion is one of Versions, or a later one. Empty means the newest of Versions.
	KubernetesVersion string

	custom map[schema.GroupVersionKind]*customKind
}

// New returns the schemas of the kinds of Kubernetes and of the kinds that crds define. It returns an error if the
// schema of one of crds is invalid.
func New(crds ...*apiextensionsv1.CustomResourceDefinition) (*Catalog, error) {
	c := &Catalog{custom: map[schema.GroupVersionKind]*customKind{}}
	for _, definition := range crds {
		for i := range definition.Spec.Versions {
			version := &definition.Spec.Versions[i]
			kind, err := newCustomKind(definition, version)
			if err != nil {
				return nil, err
			}
			c.custom[schema.GroupVersionKind{
				Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind,
			}] = kind
		}
	}
	return c, nil
}

// Knows reports whether the catalog has the schema of a kind, or cannot know because it has no schemas: Check says so.
func (c *Catalog) Knows(kind schema.GroupVersionKind) bool {
	return c.kubernetes().err != nil || c.custom[kind] != nil || c.kubernetes().kinds[kind] != ""
}

// Check returns the problems of an object, in the order of their paths. It returns none for an object of a kind that
// the catalog does not know. It does not change the object.
func (c *Catalog) Check(object map[string]any) []Problem {
	apiVersion, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	kind := schema.FromAPIVersionAndKind(apiVersion, name)
	if err := c.kubernetes().err; err != nil {
		return []Problem{{Message: "cannot be checked: " + err.Error()}}
	}
	check := &checker{catalog: c}
	if custom := c.custom[kind]; custom != nil {
		check.custom(custom, object)
	} else if s := c.kubernetes().kind(kind); s != nil {
		check.isLater = isLater(c.KubernetesVersion)
		check.structural(nil, s, object, nil)
	}
	slices.SortStableFunc(check.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(check.problems)
}

// kubernetes returns the schemas of the catalog's version of Kubernetes, or the newest for a later version.
func (c *Catalog) kubernetes() *kubernetes {
	version := cmp.Or(c.KubernetesVersion, Newest())
	if isLater(version) {
		version = Newest()
	}
	if schemas, isKnown := versions()[version]; isKnown {
		return schemas()
	}
	return &kubernetes{err: CheckVersion(version)}
}
