package vetting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// vettingsAtOnce bounds how many templates are vetted at a time in a replica. The others wait as long as their requests
// do.
const vettingsAtOnce = 2

// Template admits NamespaceTemplates that can be populated and whose author could write, delete and grant in all
// namespaces what the operator does for them: nobody has the operator do what they could not do themselves.
type Admission struct {
	mapper     meta.RESTMapper
	clients    kubernetes.Interface
	templates  client.Reader
	live       client.Reader
	attributes *attribute.Admission
	outlines   outlines
	vettings   chan struct{}
}

// Options are what NewAdmission needs.
type Options struct {
	Mapper meta.RESTMapper
	// Clients are the operator's own.
	Clients kubernetes.Interface
	// Templates reads all NamespaceTemplates from a cache, Live from the API server.
	Templates, Live client.Reader
	// Attributes has the rules about protected attributes.
	Attributes *attribute.Admission
}

// NewAdmission returns the validator.
func NewAdmission(o Options) *Admission {
	return &Admission{
		mapper: o.Mapper, clients: o.Clients, templates: o.Templates, live: o.Live, attributes: o.Attributes,
		vettings: make(chan struct{}, vettingsAtOnce),
	}
}

// Validate is asked about creations, updates and deletions of NamespaceTemplates.
func (t *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" || request.Object == nil && request.OldObject == nil {
		return nil
	}
	e, err := editOf(request)
	if err != nil {
		return webhook.Deny(err.Error())
	}
	if !e.widens() && !e.prunesAll() {
		return nil
	}
	v := &review{Admission: t, edit: e, request: request, author: t.author(request.UserInfo)}
	problems, err := v.judge(ctx)
	if err != nil {
		return fmt.Errorf("template %s: %w", e.name(), err)
	}
	if len(problems) > 0 {
		return webhook.Deny(refusal(e.name(), problems))
	}
	return nil
}

func templateOf(object *unstructured.Unstructured) (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, template); err != nil {
		return nil, fmt.Errorf("template %s: %w", object.GetName(), err)
	}
	return template, nil
}

func refusal(template string, problems []error) string {
	if len(problems) == 1 {
		return fmt.Sprintf("template %s: %v", template, problems[0])
	}
	lines := []string{fmt.Sprintf("template %s has %d problems:", template, len(problems))}
	for _, problem := range problems {
		lines = append(lines, "- "+problem.Error())
	}
	return strings.Join(lines, "\n")
}

// review is about one request.
type review struct {
	*Admission
	edit
	request *webhook.Request
	author  *author
	// unlimited says that the author may do everything.
	unlimited bool
	others    []*outline
	// combined are the variants of the updated template, once they are compiled.
	combined []render.Variant
}

// judge says what is wrong with an edit. What takes long comes last, when it is known that the author may write such
// objects at all. The error says that it could not be judged.
func (v *review) judge(ctx context.Context) ([]error, error) {
	if v.widens() {
		if err := render.CheckBudget(v.updated); err != nil {
			return []error{err}, nil
		}
	}
	kinds, problems, err := v.judgeKinds(ctx)
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	if !v.widens() {
		return v.judgeAttributes(ctx)
	}
	if err := render.CheckCombinations(v.updated); err != nil && !v.unlimited && grantsRights(kinds) {
		return []error{fmt.Errorf("it has objects of RBAC, and %w, of which not all can be checked: "+
			"declare Roles and RoleBindings in a template of their own", err)}, nil
	}
	if v.others, err = v.outlines.read(ctx, v.templates, v.name()); err != nil {
		return nil, err
	}
	if problems, err = v.judgeOverlaps(ctx); err != nil || len(problems) > 0 {
		return problems, err
	}
	select {
	case v.vettings <- struct{}{}:
		defer func() { <-v.vettings }()
	case <-ctx.Done():
		return nil, errors.New("other templates are being vetted: try again")
	}
	variants, problems := render.VetVariants(ctx, v.updated)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		problems, err = v.judgeVariants(ctx, kinds, variants)
	}
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	missing, err := v.ownRights(ctx, variants[0].Compiled, kinds)
	v.warn(slices.Concat(render.Warnings(v.updated), missing)...)
	return nil, err
}

func (v *review) warn(warnings ...string) {
	v.request.Warnings = append(v.request.Warnings, warnings...)
}

// judgeKinds says of which kinds the author could not write or delete objects in all namespaces, and which there are
// not.
func (v *review) judgeKinds(ctx context.Context) (kinds []found, problems []error, err error) {
	var writes []question
	if v.widens() {
		declared, unknown, warnings, err := v.lookUp(render.KindsOf(named(render.Declarations(v.updated))))
		if err != nil {
			return nil, nil, err
		}
		emptied, unnamespaced, more, err := v.lookUp(authoritativeKinds(v.updated))
		if err != nil {
			return nil, nil, err
		}
		v.warn(slices.Concat(warnings, more)...)
		problems = slices.Concat(unknown, unnamespaced)
		for _, kind := range declared {
			writes = append(writes, kind.may("create"), kind.may("patch")) // server-side apply needs both
		}
		for _, kind := range emptied {
			writes = append(writes, kind.may("delete"))
		}
		kinds = slices.Concat(declared, emptied)
	}
	everything := question{verb: "*", group: "*", resource: "*"}
	missing, err := v.author.missing(ctx, []question{everything})
	if v.unlimited = err == nil && len(missing) == 0; err != nil || v.unlimited {
		return kinds, problems, err
	}
	more, err := v.missing(ctx, writes, v.prunedKinds())
	return kinds, slices.Concat(problems, more), err
}

// named leaves out what vetting refuses anyway.
func named(declarations []render.Declaration) []render.Declaration {
	return slices.DeleteFunc(declarations, func(d render.Declaration) bool {
		return d.Kind == "" || d.Version == "" || d.Name == ""
	})
}

// missing says which writes the author may not make, and of which kinds the author may not delete objects.
func (v *review) missing(ctx context.Context, writes []question, deleted []schema.GroupVersionKind) ([]error, error) {
	resources, err := v.resources(deleted)
	if err != nil {
		return nil, err
	}
	for _, kind := range resources {
		writes = append(writes, kind.may("delete"))
	}
	missing, err := v.author.missing(ctx, writes)
	var problems []error
	for len(missing) > 0 {
		resource := missing[0]
		resource.verb = ""
		var verbs []string
		missing = slices.DeleteFunc(missing, func(q question) bool {
			verb := q.verb
			if q.verb = ""; q == resource {
				verbs = append(verbs, verb)
			}
			return q == resource
		})
		resource.verb = strings.Join(verbs, " or ")
		problems = append(problems,
			fmt.Errorf("%s may not %s in all namespaces, and so may not have it done by a template: "+
				"ask an administrator for that right or to make the change", v.author, resource))
	}
	return problems, err
}

// combinations returns the updated template with every combination of its overlays.
func (v *review) combinations(ctx context.Context) ([]render.Variant, error) {
	var err error
	if v.combined == nil {
		v.combined, err = render.Variants(ctx, v.updated)
	}
	return v.combined, err
}

// judgeVariants says what the author could not prune or grant, and which attributes they may not touch. The variants
// are the template by itself, and with each overlay alone.
func (v *review) judgeVariants(
	ctx context.Context, kinds []found, variants []render.Variant,
) (problems []error, err error) {
	complete := true
	if !v.unlimited && (grantsRights(kinds) || patches(v.updated)) {
		combined, err := v.combinations(ctx)
		switch {
		case err == nil:
			variants = combined
		case errors.Is(err, render.ErrCombinations):
			complete = false
		default:
			return nil, err
		}
	}
	if !v.unlimited {
		more, err := v.judgeDeletions(ctx, variants, complete)
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	grants, ungrantable := grantsOf(variants, func(role string) bool { return v.declaresRole(role) })
	problems = append(problems, ungrantable...)
	if !v.unlimited {
		more, err := v.judgeGrants(ctx, grants)
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	protected, err := v.judgeAttributes(ctx)
	return append(problems, protected...), err
}

// grantsRights reports whether objects of RBAC are among the kinds.
func grantsRights(kinds []found) bool {
	return slices.ContainsFunc(kinds, func(kind found) bool { return kind.kind.Group == rbacv1.GroupName })
}

// authoritativeKinds returns the kinds of which a template has objects deleted that nothing declares.
func authoritativeKinds(template *v1alpha1.NamespaceTemplate) []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, 0, len(template.Spec.Authoritative))
	for _, kind := range template.Spec.Authoritative {
		kinds = append(kinds, schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
	}
	return kinds
}

// ownRights says which rules the operator lacks for a template, as the template's status will.
func (t *Admission) ownRights(ctx context.Context, base *render.Compiled, kinds []found) ([]string, error) {
	var warnings []string
	for _, kind := range kinds {
		if kind.guessed {
			continue
		}
		err := objects.CheckRights(ctx, t.clients.AuthorizationV1().SelfSubjectAccessReviews(), kind.resource)
		if missing, ok := errors.AsType[*objects.MissingRule](err); ok {
			warnings = append(warnings, missing.Error())
		} else if err != nil {
			return nil, err
		}
	}
	bindings, err := t.ownBindings(ctx, base)
	return append(warnings, bindings...), err
}

// ownBindings says which ClusterRoles the operator may not bind.
func (t *Admission) ownBindings(ctx context.Context, base *render.Compiled) ([]string, error) {
	grants, _ := grantsOf([]render.Variant{{Compiled: base}}, func(string) bool { return false })
	var warnings []string
	for _, g := range grants {
		if g.power.verb != "bind" || g.power.resource != "clusterroles" {
			continue
		}
		allowed, err := t.mayMyself(ctx, g.power)
		if err != nil {
			return nil, err
		}
		if names := fmt.Sprintf("resourceNames: [%q], ", g.power.name); !allowed {
			if g.power.name == "" {
				names = ""
			}
			warnings = append(warnings,
				fmt.Sprintf(`%s: the operator may not %s: add a ClusterRole with the label %s: "true" and the rule `+
					`{apiGroups: [%q], resources: ["clusterroles"], %sverbs: [bind]}`, g.object, g.power,
					v1alpha1.AggregateLabel, rbacv1.GroupName, names))
		}
	}
	return warnings, nil
}

// Plugin returns the row of the chain.
func (t *Admission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "template", Validator: t,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
				admissionregistrationv1.ClusterScope,
				[]string{v1alpha1.NamespaceTemplates.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		},
		MatchConditions: templateConditions(),
		FailurePolicy:   admissionregistrationv1.Fail, // a template grants rights
		TimeoutSeconds:  10,
	}
}

// templateConditions leave out what neither populates nor prunes anything, so that templates can be disabled and
// deleted while the operator is down. Those that delete their objects then can be deleted by whoever may do everything.
func templateConditions() []admissionregistrationv1.MatchCondition {
	const (
		applies  = ".metadata.?annotations[?'" + v1alpha1.TemplateApplyAnnotation + "'].orValue('')"
		requires = ".metadata.?annotations[?'" + v1alpha1.RequirePermissionAnnotation + "'].orValue('')"
		deletes  = ".spec.?deletionPolicy.orValue('') == '" + string(v1alpha1.DeletionDelete) + "'"
		disabled = "'" + v1alpha1.TemplateApplyDisable + "'"
	)
	return []admissionregistrationv1.MatchCondition{
		{
			Name: "decides-what-is-populated",
			Expression: "object == null ? oldObject" + deletes + " && oldObject" + applies + " != " + disabled + " : " +
				"oldObject == null || object.spec != oldObject.spec || " +
				"object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences || " +
				"object" + requires + " != oldObject" + requires + " || " +
				"object" + applies + " != oldObject" + applies + " && (object" + applies + " != " + disabled +
				" || object" + deletes + ")",
		},
		{
			Name:       "deleted-by-an-author",
			Expression: "object != null || !authorizer.group('*').resource('*').check('*').allowed()",
		},
	}
}
