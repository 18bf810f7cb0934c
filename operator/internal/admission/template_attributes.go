package admission

import (
	"context"
	"fmt"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeAttributes says which protected attributes a template sets that its author may not set everywhere. The operator is not
// asked when it populates namespaces: it copies what the author answers for, as Kubernetes' controllers copy pod templates.
// The rules of single namespaces don't bind templates, which are the cluster's.
func (t *Template) judgeAttributes(ctx context.Context, request *Request, template *v1alpha1.NamespaceTemplate) ([]error, error) {
	who := attributes.Requester{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	rules, err := t.attributes.at(ctx, request.Revision)
	if err != nil || !rules.OfCluster() || t.attributes.exempt.has(who) {
		return nil, err
	}
	if len(template.Spec.Overlays) > render.MaxVariantOverlays {
		return []error{fmt.Errorf("there are protected attributes, and it has more than %d overlays, of which not every combination "+
			"can be checked for them: make more than one template of it", render.MaxVariantOverlays)}, nil
	}
	variants, err := render.Variants(template)
	if err != nil {
		return nil, err
	}
	index, err := t.attributes.bindings.Index(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	said := map[string]bool{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			violations := rules.Judge(attributes.Change{New: object.Object}, func(role v1alpha1.RoleReference) bool {
				return index.Holds(who, role, "")
			})
			for _, violation := range violations {
				problem := fmt.Errorf("user %q may not %s in all namespaces: %s", who.Name,
					violation.What(object.GetKind()+" "+object.GetName()), violation.Remedy())
				if !said[problem.Error()] {
					said[problem.Error()] = true
					problems = append(problems, problem)
				}
			}
		}
	}
	return problems, nil
}
