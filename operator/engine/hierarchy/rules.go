package hierarchy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/quota"
)

// rootOnly are the cluster-scoped kinds, which only the root directory may contain.
var rootOnly = []string{kindClusterRole, kindClusterRoleBinding, kindPodSecurityPolicy}

// check checks the rules about the objects of a directory.
func (l *loader) check(d *Directory) {
	isNamespace := slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace })
	if isNamespace {
		l.checkNamespace(d)
	} else {
		l.checkPolicyspace(d)
	}
	for _, object := range d.objects {
		if slices.Contains(rootOnly, object.kind) && (isNamespace || d.Parent != nil) {
			l.violate("root-only", object.Path, object.Line,
				object.describe()+" is cluster-scoped, which is only allowed in the root directory",
				"move it into "+l.root+", which must be a policyspace directory")
		}
	}
	l.checkDuplicates(d)
}

// checkDuplicates reports objects of the same kind and name in a directory, and more than one ResourceQuota.
func (l *loader) checkDuplicates(d *Directory) {
	seen := map[string]Object{}
	for _, object := range d.objects {
		key := object.kind + " " + object.name
		if before, twice := seen[key]; twice && object.name != "" {
			l.violate("dup-name", object.Path, object.Line,
				fmt.Sprintf("%s already exists in the directory, in %s line %d", key, before.Path, before.Line),
				"rename or remove one of them")
			continue
		}
		seen[key] = object
	}
	quotas := 0
	for _, object := range d.objects {
		if object.kind != kindResourceQuota {
			continue
		}
		if quotas++; quotas > 1 {
			l.violate("multi-quota", object.Path, object.Line,
				fmt.Sprintf("ResourceQuota %s is not the only ResourceQuota of the directory", object.name),
				"merge them into one")
		}
	}
}

func (l *loader) checkNamespace(d *Directory) {
	for _, child := range d.Children {
		l.violate("ns-leaf", child.Path, 0,
			fmt.Sprintf("directory %s is in %s, which is a namespace directory", child.Name, d.Name),
			"move it out, or move the Namespace into a directory of its own")
	}
	for _, object := range d.objects {
		switch {
		case object.kind == kindNamespace && object.name != d.Name && object.name != "":
			l.violate("ns-name-match", object.Path, object.positions.name,
				fmt.Sprintf("Namespace %s is in directory %s", object.name, d.Name), "give both the same name")
		case object.kind == kindNamespace, slices.Contains(rootOnly, object.kind):
		case !slices.Contains([]string{kindRole, kindRoleBinding, kindResourceQuota}, object.kind):
			l.violate("ns-kind", object.Path, object.Line, object.describe()+" is not allowed in a namespace directory",
				"move it out: only Namespace, Role, RoleBinding and ResourceQuota are allowed there")
		case object.namespace != "" && object.namespace != d.Name:
			l.violate("ns-name-match", object.Path, object.positions.namespace,
				fmt.Sprintf("%s has metadata.namespace %s in directory %s", object.describe(), object.namespace,
					d.Name),
				"remove metadata.namespace, or use the name of the directory")
		case object.kind == kindResourceQuota && object.name == v1alpha1.QuotaName:
			l.violate("name-reserved", object.Path, object.positions.name,
				object.describe()+" has a name that is reserved for the operator", "rename it")
		}
		if _, limited := namespaceLimit(object); limited {
			l.warn(object.Path, object.Line,
				fmt.Sprintf("%s limits %s, which has no effect in a namespace: move the limit to a policyspace directory",
					object.describe(), quota.Namespaces))
		}
	}
}

// namespaceLimit returns the limit of a ResourceQuota on the number of namespaces, and whether it has one.
func namespaceLimit(object Object) (limit resource.Quantity, limited bool) {
	if limits, ok := object.Object.(*corev1.ResourceQuota); ok {
		limit, limited = limits.Spec.Hard[quota.Namespaces]
	}
	return limit, limited
}

// countNamespaces returns how many namespace directories are below a directory.
func countNamespaces(d *Directory) int64 {
	count := int64(0)
	for _, child := range d.Children {
		if slices.ContainsFunc(child.objects, func(o Object) bool { return o.kind == kindNamespace }) {
			count++
		} else {
			count += countNamespaces(child)
		}
	}
	return count
}

func (l *loader) checkPolicyspace(d *Directory) {
	for _, object := range d.objects {
		if limit, limited := namespaceLimit(object); limited && limit.Value() < countNamespaces(d) {
			l.warn(object.Path, object.Line,
				fmt.Sprintf("%s limits namespaces to %s, but the tree has %d below %s: the others cannot be created",
					object.describe(), limit.String(), countNamespaces(d), d.Name))
		}
		if limits, ok := object.Object.(*corev1.ResourceQuota); ok &&
			(len(limits.Spec.Scopes) > 0 || limits.Spec.ScopeSelector != nil) {
			l.violate("ps-quota-scopes", object.Path, object.positions.scopes,
				fmt.Sprintf("ResourceQuota %s of a policyspace has scopes, which are only allowed in namespaces",
					object.name),
				"remove scopes and scopeSelector")
		}
		switch {
		case object.kind == kindRole:
			l.violate("ps-role", object.Path, object.Line,
				object.describe()+" is not allowed in a policyspace directory",
				"make it a ClusterRole in "+l.root+", or move it into a namespace directory")
		case slices.Contains(rootOnly, object.kind):
		case object.kind != kindRoleBinding && object.kind != kindResourceQuota:
			l.violate("ps-kind", object.Path, object.Line,
				object.describe()+" is not allowed in a policyspace directory",
				"move it out: only RoleBinding and ResourceQuota are allowed there")
		case object.namespace != "":
			l.violate("ps-namespace-field", object.Path, object.positions.namespace,
				fmt.Sprintf("%s has metadata.namespace %s in a policyspace, which has many namespaces",
					object.describe(), object.namespace),
				"remove metadata.namespace")
		}
	}
}

const dnsRemedy = "use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"

// checkNames checks the rules about the names of directories.
func (l *loader) checkNames(tree *Tree) {
	first := map[string]string{}
	tree.Visit(func(d *Directory) {
		if reasons := validation.IsDNS1123Label(d.Name); len(reasons) > 0 {
			l.violate("name-dns", d.Path, 0, fmt.Sprintf("%q is not a valid namespace or policyspace name", d.Name),
				dnsRemedy)
		}
		if isReserved(d.Name) {
			l.violate("name-reserved", d.Path, 0, fmt.Sprintf("the name %s is reserved", d.Name),
				fmt.Sprintf("choose a name that is not default, nomos-system, %s or %s and does not begin with kube-",
					v1alpha1.OperatorNamespace, v1alpha1.TrialNamespace))
		}
		if before, taken := first[d.Name]; taken {
			l.violate("name-unique", d.Path, 0, fmt.Sprintf("the name %s is also the name of %s", d.Name, before),
				"rename one of them")
		} else {
			first[d.Name] = d.Path
		}
	})
}

func isReserved(name string) bool {
	return name == "default" || name == "nomos-system" || match.IsSystemNamespace(name) ||
		strings.HasPrefix(name, "kube-")
}
