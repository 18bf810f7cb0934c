package vet

// The rules about files. Package hierarchy has those about trees, and package render has more about templates.
const (
	ruleParse     = "parse"
	ruleSchema    = "schema"
	ruleDuplicate = "duplicate"
	ruleSelector  = "selector"
	ruleToken     = "token"
	ruleCycle     = "cycle"
	ruleQuota     = "quota"
	ruleServer    = "server"
)

// rule describes a rule: what a violation means, and what to do about it.
type rule struct {
	id, meaning, remedy string
}

// rules are all rules of files and trees, as docs/vet.md lists them.
var rules = []rule{
	{ruleParse, "a file cannot be read, or an object has a key twice", "correct the YAML or JSON, or split the file"},
	{
		ruleSchema, "an object has unknown or invalid fields, or lacks a required one",
		"correct the field: the message has the values that are allowed, or a similar field",
	},
	{
		ruleDuplicate, "an object or an overlay is declared twice, in the files or in a template",
		"rename or remove one of the two",
	},
	{ruleSelector, "a label selector is missing or invalid", "correct its operators, keys and values; {} selects all"},
	{ruleCycle, "a policy space is its own ancestor", "change the parent of one of its ancestors"},
	{ruleQuota, "a policy space limits what no ResourceQuota can limit", "correct or remove the limit"},
	{ruleServer, "the API server rejects the object (with --server)", "do what its message says"},
	{"list", "a template declares a list", "declare its items one by one"},
	{"name", "the name of an object is invalid, or too long in some namespaces", "choose another name"},
	{
		"namespace", "a template sets the namespace of an object",
		"remove it: objects are created in the namespaces that are populated",
	},
	{"overlay", "an overlay cannot be applied to the objects of its template", "correct the patch or its target"},
	{"reserved-key", "an object uses a label or an annotation that nstpl or kustomize sets", "remove it"},
	{"scope", "a template declares an object that is not in a namespace, or a TemplateExemption", "apply it without a template"},
	{
		"server-metadata", "an object has fields that the API server sets, such as uid or status",
		"remove what kubectl get prints but you did not write",
	},
	{
		"size", "a template or a directory has too many objects, or objects that are too large",
		"distribute them over several templates or directories",
	},
	{
		"source", "a template copies an object of a kind that cannot be copied",
		"declare the object in `spec.templates`",
	},
	{
		ruleToken, "a token is in a place where it is not replaced, or stands for what a template cannot depend on",
		"use tokens only in values, not in apiVersion, kind or keys; of labels and annotations that no template sets",
	},
	{"version", "Kubernetes does not serve the apiVersion of an object", "use the version that the message names"},
	{
		"dup-name", "a directory of a tree contains two objects of the same kind and name",
		"rename or remove one of the two",
	},
	{
		"symlink", "a tree contains a symbolic link, which may point outside of the tree",
		"replace it with the file or directory itself",
	},
	{
		"ns-leaf", "a namespace directory contains directories",
		"move them out, or move the Namespace into a directory of its own",
	},
	{
		"ns-name-match",
		"a Namespace, or the metadata.namespace of an object beside it, has another name than the directory",
		"give both the same name",
	},
	{
		"ns-kind", "a namespace directory contains other kinds than Namespace, Role, RoleBinding and ResourceQuota",
		"move the object out of the tree",
	},
	{
		"ns-label", "a Namespace sets a label that records its place in the tree",
		"remove the label: nstpl sets it from the directory",
	},
	{
		"ps-role", "a policy space directory contains a Role",
		"make it a ClusterRole in the root, or move it into a namespace directory",
	},
	{
		"ps-kind", "a policy space directory contains other kinds than RoleBinding and ResourceQuota",
		"move the object out of the tree",
	},
	{
		"ps-namespace-field", "an object in a policy space directory sets metadata.namespace",
		"remove it: a policy space has many namespaces",
	},
	{"ps-quota-scopes", "the ResourceQuota of a policy space has scopes", "remove scopes and scopeSelector"},
	{
		"root-only", "a ClusterRole, ClusterRoleBinding or PodSecurityPolicy is not immediately in the root",
		"move it into the root directory",
	},
	{"multi-quota", "a directory contains more than one ResourceQuota", "merge them into one"},
	{
		"name-dns", "the name of a directory is not a DNS label",
		"use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends",
	},
	{
		"name-reserved", "a directory, a ResourceQuota or a ConfigMap has a name that is reserved for Kubernetes or for nstpl",
		"choose another name",
	},
	{"name-unique", "two directories of a tree have the same name", "rename one of the two"},
}
