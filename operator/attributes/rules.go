package attributes

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Rule is a ClusterProtectedAttribute or, in a namespace, a ProtectedAttribute.
type Rule struct {
	Namespace, Object string
	v1alpha1.AttributeRule
}

// String returns the kind and the name of the object, for messages.
func (r Rule) String() string {
	if r.Namespace == "" {
		return "ClusterProtectedAttribute " + r.Object
	}
	return "ProtectedAttribute " + r.Namespace + "/" + r.Object
}

// Attribute returns the attribute that the rule protects.
func (r Rule) Attribute() Attribute {
	return Attribute{r.AttributeKind, r.AttributeName}
}

// Covers reports whether holders of the rule's role may set and remove all of these values.
func (r Rule) Covers(values ...string) bool {
	return len(r.ProtectedValues) == 0 || !slices.ContainsFunc(values, func(value string) bool {
		return !slices.Contains(r.ProtectedValues, value)
	})
}

// Rules are all rules of a cluster. They do not change, and are safe for concurrent use.
type Rules struct {
	cluster    map[Attribute][]Rule
	namespaced map[string]map[Attribute][]Rule
	revision   string
	// generations contains the generation of each object, by UID.
	generations map[types.UID]int64
}

// NewRules returns the rules of some objects.
func NewRules(cluster []v1alpha1.ClusterProtectedAttribute, namespaced []v1alpha1.ProtectedAttribute) *Rules {
	r := &Rules{
		cluster: map[Attribute][]Rule{}, namespaced: map[string]map[Attribute][]Rule{},
		generations: map[types.UID]int64{},
	}
	var sum Sum
	for i := range cluster {
		object := &cluster[i]
		add(r.cluster, Rule{Object: object.Name, AttributeRule: object.AttributeRule})
		r.generations[object.UID] = object.Generation
		sum.Add(object)
	}
	for i := range namespaced {
		object := &namespaced[i]
		if r.namespaced[object.Namespace] == nil {
			r.namespaced[object.Namespace] = map[Attribute][]Rule{}
		}
		add(r.namespaced[object.Namespace],
			Rule{Namespace: object.Namespace, Object: object.Name, AttributeRule: object.AttributeRule})
		r.generations[object.UID] = object.Generation
		sum.Add(object)
	}
	r.revision = sum.Revision()
	for _, rules := range r.cluster {
		slices.SortFunc(rules, byName)
	}
	for _, scope := range r.namespaced {
		for _, rules := range scope {
			slices.SortFunc(rules, byName)
		}
	}
	return r
}

func add(rules map[Attribute][]Rule, rule Rule) {
	rules[rule.Attribute()] = append(rules[rule.Attribute()], rule)
}

func byName(a, b Rule) int { return cmp.Compare(a.Object, b.Object) }

// Contain reports whether an object with a rule is among the objects of the rules, with the same generation.
func (r *Rules) Contain(object metav1.Object) bool {
	generation, ok := r.generations[object.GetUID()]
	return ok && generation == object.GetGeneration()
}

// Revision returns a hash of the rules. It changes whenever a rule is created, changed or deleted.
func (r *Rules) Revision() string { return r.revision }

// Empty reports whether there are no rules.
func (r *Rules) Empty() bool { return len(r.cluster)+len(r.namespaced) == 0 }

// OfCluster reports whether there are ClusterProtectedAttributes.
func (r *Rules) OfCluster() bool { return len(r.cluster) > 0 }

// Of returns the rules about an attribute of objects in a namespace. namespace is empty for cluster-scoped objects.
func (r *Rules) Of(attribute Attribute, namespace string) []Rule {
	return slices.Concat(r.cluster[attribute], r.namespaced[namespace][attribute])
}

// OfNamespaces returns the ProtectedAttributes about an attribute, in the order of their namespaces.
func (r *Rules) OfNamespaces(attribute Attribute) []Rule {
	var found []Rule
	for _, namespace := range slices.Sorted(maps.Keys(r.namespaced)) {
		found = append(found, r.namespaced[namespace][attribute]...)
	}
	return found
}

// all calls do for every rule.
func (r *Rules) all(do func(Rule)) {
	for _, scope := range slices.AppendSeq([]map[Attribute][]Rule{r.cluster}, maps.Values(r.namespaced)) {
		for _, rules := range scope {
			for _, rule := range rules {
				do(rule)
			}
		}
	}
}
