package populate

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/engine/render"
)

// omits reports whether a template, or any template if the name is empty, declares an object and cannot render it for
// the namespace yet.
func (d *Declared) omits(template string, id ObjectID) bool {
	return slices.ContainsFunc(d.Omitted, func(o render.Omission) bool {
		return (template == "" || o.Template == template) && o.Kind.GroupKind() == id.GroupKind &&
			mayBeNamed(o.Name, id.Name)
	})
}

// broken returns the name of a template that can't be rendered and may declare an object: of a given one, or of any if
// the name is empty. It returns "" if there is none. What such a template populated is not pruned, except Roles and
// RoleBindings that it certainly does not declare: a failure does not keep grants that a change takes away.
func (d *Declared) broken(template string, id ObjectID) string {
	for _, broken := range d.Broken {
		if template != "" && broken.Template.Name != template {
			continue
		}
		if !isRBAC(id.GroupKind) ||
			slices.ContainsFunc(render.AllDeclarations(broken.Template), func(declaration render.Declaration) bool {
				return declaration.GroupKind() == id.GroupKind && mayBeNamed(declaration.Name, id.Name)
			}) {
			return broken.Template.Name
		}
	}
	return ""
}

// mayBeNamed reports whether a declared name, which may contain tokens, may be the name of an object.
func mayBeNamed(declared, name string) bool {
	before, _, hasToken := strings.Cut(declared, "$(")
	if !hasToken {
		return declared == name
	}
	return strings.HasPrefix(name, before) && strings.HasSuffix(name, declared[strings.LastIndex(declared, ")")+1:])
}
