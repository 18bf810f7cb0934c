package vet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// related are the objects that are checked together, after all files were read.
type related struct {
	templates  []namespaceTemplate
	spaces     []policySpace
	attributes []attributeRule
}

type namespaceTemplate struct {
	*v1alpha1.NamespaceTemplate
	source source.Object
}

type policySpace struct {
	v1alpha1.PolicySpace
	source source.Object
}

// attributeRule is a ProtectedAttribute or a ClusterProtectedAttribute, which has the same fields.
type attributeRule struct {
	v1alpha1.ProtectedAttribute
	source source.Object
}

// checkRelated checks the objects that depend on one another.
func (c *checker) checkRelated() {
	c.checkSetLabels()
	c.checkSources()
	c.checkForest()
	c.checkAttributes()
}

// checkSetLabels reports the labels of namespaces that one template sets and by which another one selects. Templates
// that select by their own labels are reported by package render.
func (c *checker) checkSetLabels() {
	selecting := map[string][]string{}
	for _, template := range c.related.templates {
		for _, label := range match.SelectorKeys(&template.Spec) {
			selecting[label] = append(selecting[label], template.Name)
		}
	}
	for _, template := range c.related.templates {
		c.checkSetBy(template, "spec.namespaceMetadata", template.Spec.NamespaceMetadata, selecting)
		for i := range template.Spec.Overlays {
			c.checkSetBy(template, fmt.Sprintf("spec.overlays[%d].namespaceMetadata", i),
				template.Spec.Overlays[i].NamespaceMetadata, selecting)
		}
	}
}

// checkSources reports the labels and annotations from which one template renders and that another one sets, and those
// that no rule in the files protects. Templates that set them themselves are reported by package render.
func (c *checker) checkSources() {
	setters := map[render.MetadataKey][]string{}
	for _, template := range c.related.templates {
		for key := range render.DeclaredMetadata(&template.Spec) {
			setters[key] = append(setters[key], template.Name)
		}
	}
	rules := c.clusterRules()
	for _, template := range c.related.templates {
		noted := map[render.MetadataKey]bool{}
		for _, reference := range render.References(&template.Spec) {
			key := reference.MetadataKey
			others := slices.DeleteFunc(slices.Clone(setters[key]), func(name string) bool {
				return name == template.Name
			})
			if len(others) > 0 {
				c.violate(template.source, ruleToken, reference.Path, fmt.Sprintf(
					"the token %s cannot be used, since template %s sets the %s", key.Token(), others[0], key),
					"write its value instead: a template cannot depend on what templates set")
			}
			if c.cluster == nil && !noted[key] && !c.isReported(template.source, reference.Path) &&
				len(rules.Of(key.Attribute(), "")) == 0 {
				noted[key] = true
				c.skip(template.source, reference.Path, fmt.Sprintf("no ClusterProtectedAttribute in the files protects "+
					"the %s, from which the template renders: add its file, or use --server", key))
			}
		}
	}
}

// clusterRules returns the ClusterProtectedAttributes in the files.
func (c *checker) clusterRules() *attributes.Rules {
	var cluster []v1alpha1.ClusterProtectedAttribute
	for _, rule := range c.related.attributes {
		if rule.source.Kind == "ClusterProtectedAttribute" {
			cluster = append(cluster,
				v1alpha1.ClusterProtectedAttribute{ObjectMeta: rule.ObjectMeta, AttributeRule: rule.AttributeRule})
		}
	}
	return attributes.NewRules(cluster, nil)
}

// checkSetBy checks the labels that a template or one of its overlays sets. selecting are the names of the templates
// that select by a label.
func (c *checker) checkSetBy(
	template namespaceTemplate, field string, set *v1alpha1.NamespaceMetadata, selecting map[string][]string,
) {
	if set == nil {
		return
	}
	for _, label := range slices.Sorted(maps.Keys(set.Labels)) {
		others := slices.DeleteFunc(slices.Clone(selecting[label]), func(name string) bool {
			return name == template.Name
		})
		if len(others) > 0 {
			c.violate(template.source, ruleSelector, field+".labels["+label+"]",
				fmt.Sprintf("template %s selects namespaces, overlays or waves by the label %s", others[0], label),
				"a template cannot set a label by which a template selects, or they could select in circles")
		}
	}
}

// checkForest checks the hierarchy of the policy spaces.
func (c *checker) checkForest() {
	spaces := make([]*v1alpha1.PolicySpace, 0, len(c.related.spaces))
	for i := range c.related.spaces {
		spaces = append(spaces, &c.related.spaces[i].PolicySpace)
	}
	forest := hierarchy.NewForest(spaces)
	for _, space := range c.related.spaces {
		lineage, err := forest.Lineage(space.Name)
		broken, isBroken := errors.AsType[*hierarchy.BrokenError](err)
		switch {
		case isBroken && broken.Cycle:
			if !c.isReported(space.source, "spec.parent") && space.Spec.Parent != space.Name {
				c.violate(space.source, ruleCycle, "spec.parent", "it is its own ancestor",
					"change the parent of one of its ancestors")
			}
		case isBroken && c.cluster == nil && !c.isReported(space.source, "spec.parent"):
			c.skip(space.source, "spec.parent", fmt.Sprintf(
				"policyspace %s is not in the files: add its file, or use --server", broken.Missing))
		case err == nil:
			for _, warning := range quota.Unreachable(lineage) {
				c.warn(space.source, "spec.quota.hard", warning)
			}
		}
	}
}

// checkAttributes warns about rules of namespaces that permit what a rule of the cluster forbids.
func (c *checker) checkAttributes() {
	rules := c.clusterRules()
	for _, rule := range c.related.attributes {
		attribute := attributes.Attribute{Kind: rule.AttributeKind, Name: rule.AttributeName}
		if protecting := rules.Of(attribute, ""); rule.source.Kind == "ProtectedAttribute" && len(protecting) > 0 {
			c.warn(rule.source, "attributeName", fmt.Sprintf(
				"%s also protects %s: to write this rule, you need the verb create on %s", protecting[0], attribute,
				v1alpha1.ClusterProtectedAttributes.GroupResource()))
		}
	}
}
