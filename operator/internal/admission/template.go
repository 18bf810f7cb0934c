package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/objects"
)

// Template admits NamespaceTemplates that can be populated and whose author could create all their objects and grant all
// their grants, in all namespaces: nobody has the operator do what they could not do themselves.
type Template struct {
	mapper     meta.RESTMapper
	clients    kubernetes.Interface
	templates  client.Reader
	attributes *Attributes
}

// NewTemplate returns the validator. The clients are the operator's own; templates reads all NamespaceTemplates.
func NewTemplate(mapper meta.RESTMapper, clients kubernetes.Interface, templates client.Reader, attributes *Attributes) *Template {
	return &Template{mapper: mapper, clients: clients, templates: templates, attributes: attributes}
}

// Validate is asked about creations and updates of NamespaceTemplates.
func (t *Template) Validate(ctx context.Context, request *Request) error {
	if request.Object == nil || request.SubResource != "" {
		return nil
	}
	template, err := templateOf(request.Object)
	if err != nil {
		return &Refused{err.Error()}
	}
	if request.OldObject != nil && !wider(request.OldObject, request.Object) {
		return nil
	}
	problems := render.Vet(template)
	if len(problems) == 0 {
		if problems, err = t.judge(ctx, request, template); err != nil {
			return fmt.Errorf("template %s: %w", template.Name, err)
		}
	}
	if len(problems) > 0 {
		return &Refused{refusal(template.Name, problems)}
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

// wider tells whether an update may populate what was not populated before: whoever makes it answers for the whole
// template. Other metadata, such as the operator's finalizer, decides on nothing.
func wider(old, updated *unstructured.Unstructured) bool {
	if !equality.Semantic.DeepEqual(old.Object["spec"], updated.Object["spec"]) {
		return true
	}
	before, after := old.GetAnnotations(), updated.GetAnnotations()
	off := func(annotations map[string]string) bool {
		return match.Off(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}) != ""
	}
	guarded := func(annotations map[string]string) bool {
		return annotations[v1alpha1.RequirePermissionAnnotation] == "true"
	}
	return off(before) && !off(after) || guarded(before) && !guarded(after)
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

// judge holds a template against the cluster and against the rights of its author. The error says that it could not.
func (t *Template) judge(ctx context.Context, request *Request, template *v1alpha1.NamespaceTemplate) ([]error, error) {
	base, err := render.Compile(template, nil)
	if err != nil {
		return nil, err
	}
	kinds, problems, warnings, err := t.lookUp(base.Kinds())
	if err != nil {
		return nil, err
	}
	emptied, unnamespaced, unknown, err := t.lookUp(authoritativeKinds(template))
	if err != nil {
		return nil, err
	}
	problems, warnings = append(problems, unnamespaced...), append(warnings, unknown...)
	author := t.author(request.UserInfo)
	more, err := t.judgeAuthor(ctx, author, template, base, kinds, emptied)
	if err != nil {
		return nil, err
	}
	protected, err := t.judgeAttributes(ctx, request, template)
	if err != nil {
		return nil, err
	}
	if problems = slices.Concat(problems, more, protected); len(problems) > 0 {
		return problems, nil
	}
	missing, err := t.ownRights(ctx, base, slices.Concat(kinds, emptied))
	request.Warnings = append(request.Warnings, slices.Concat(render.Warnings(template), warnings, missing)...)
	return nil, err
}

// authoritativeKinds returns the kinds of which a template has objects deleted that nothing declares.
func authoritativeKinds(template *v1alpha1.NamespaceTemplate) []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, 0, len(template.Spec.Authoritative))
	for _, kind := range template.Spec.Authoritative {
		kinds = append(kinds, schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
	}
	return kinds
}

// found is a kind of a template, as the cluster knows it.
type found struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	// guessed says that the cluster doesn't know the kind, and the resource is what it is most likely called.
	guessed bool
}

// lookUp asks the cluster's discovery for kinds.
func (t *Template) lookUp(kinds []schema.GroupVersionKind) (known []found, problems []error, warnings []string, err error) {
	for _, kind := range kinds {
		mapping, err := t.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			known = append(known, found{kind, resource, true})
			warnings = append(warnings, fmt.Sprintf("the cluster doesn't know %s %s yet: its objects are populated once it does",
				kind.GroupVersion(), kind.Kind))
		case err != nil:
			return nil, nil, nil, fmt.Errorf("look up %s: %w", kind.GroupKind(), err)
		case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
			problems = append(problems, fmt.Errorf("%s is not namespace-scoped: a template holds objects of a namespace only", kind.GroupKind()))
		default:
			known = append(known, found{kind, mapping.Resource, false})
		}
	}
	return known, problems, warnings, nil
}

// judgeAuthor says what the author could not create, delete or grant in all namespaces.
func (t *Template) judgeAuthor(ctx context.Context, author *author, template *v1alpha1.NamespaceTemplate,
	base *render.Compiled, kinds, emptied []found,
) ([]error, error) {
	grants, problems, tooMany, err := t.grants(ctx, template, base)
	if err != nil {
		return nil, err
	}
	everything := question{verb: "*", group: "*", resource: "*"}
	if missing, err := author.missing(ctx, []question{everything}); err != nil || len(missing) == 0 {
		return problems, err
	}
	if tooMany {
		problems = append(problems, fmt.Errorf("it has objects of RBAC and more than %d overlays, of which not every combination can be checked: "+
			"declare Roles and RoleBindings in a template of their own", render.MaxVariantOverlays))
	}
	writes := make([]question, 0, len(kinds)+len(emptied))
	for _, kind := range kinds {
		writes = append(writes, question{verb: "create", group: kind.resource.Group, resource: kind.resource.Resource})
	}
	for _, kind := range emptied {
		writes = append(writes, question{verb: "delete", group: kind.resource.Group, resource: kind.resource.Resource})
	}
	missing, err := author.missing(ctx, writes)
	if err != nil {
		return nil, err
	}
	for _, q := range missing {
		problems = append(problems, fmt.Errorf("%s may not %s in all namespaces, and so may not have it done by a template: "+
			"ask an administrator for that right or to apply the template", author, q))
	}
	more, err := t.judgeGrants(ctx, author, grants)
	return append(problems, more...), err
}

// grants returns what a template hands out, with any combination of its overlays unless these are too many.
func (t *Template) grants(ctx context.Context, template *v1alpha1.NamespaceTemplate, base *render.Compiled) (grants []grant, problems []error, tooMany bool, err error) {
	if !slices.ContainsFunc(base.Kinds(), func(kind schema.GroupVersionKind) bool { return kind.Group == rbacv1.GroupName }) {
		return nil, nil, false, nil
	}
	others := &v1alpha1.NamespaceTemplateList{}
	if err := t.templates.List(ctx, others); err != nil {
		return nil, nil, false, err
	}
	variants := []render.Variant{{Compiled: base}}
	if tooMany = len(template.Spec.Overlays) > render.MaxVariantOverlays; !tooMany {
		if variants, err = render.Variants(template); err != nil {
			return nil, nil, false, err
		}
	}
	grants, problems = grantsOf(variants, func(role string) bool { return declaredElsewhere(others.Items, template.Name, role) })
	return grants, problems, tooMany, nil
}

// declaredElsewhere tells whether a template other than the named one may declare a Role of a name.
func declaredElsewhere(templates []v1alpha1.NamespaceTemplate, except, role string) bool {
	for i := range templates {
		if templates[i].Name == except {
			continue
		}
		for _, raw := range templates[i].Spec.Templates {
			object := &unstructured.Unstructured{}
			// What can't be read is populated by nobody.
			if object.UnmarshalJSON(raw.Raw) != nil || !isRBAC(object, "Role") {
				continue
			}
			if render.MayCoincide(object.GetName(), role) {
				return true
			}
		}
	}
	return false
}

// judgeGrants says which grants the author could not make: who may not bind or escalate has to hold what is granted.
func (t *Template) judgeGrants(ctx context.Context, author *author, grants []grant) ([]error, error) {
	powers := make([]question, 0, len(grants))
	for _, g := range grants {
		powers = append(powers, g.power)
	}
	powerless, err := author.missing(ctx, powers)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, g := range grants {
		if !slices.Contains(powerless, g.power) {
			continue
		}
		if err := t.readClusterRole(ctx, &g); err != nil {
			return nil, err
		}
		reason := g.unknown
		if reason == "" && author.asked()+size(g.rules) > maxQuestions {
			reason = fmt.Sprintf("it grants more than the %d rights that are looked into", maxQuestions)
		}
		if reason == "" {
			missing, err := author.missing(ctx, questions(g.rules))
			if err != nil {
				return nil, err
			}
			if len(missing) == 0 {
				continue
			}
			reason = "it grants what its author does not hold in all namespaces: " + sayMissing(missing)
		}
		problems = append(problems, fmt.Errorf("%s: %s; %s needs the right to %s in all namespaces to declare it", g.object, reason, author, g.power))
	}
	return problems, nil
}

func (t *Template) readClusterRole(ctx context.Context, g *grant) error {
	if g.clusterRole == "" {
		return nil
	}
	var err error
	role := &rbacv1.ClusterRole{}
	// A name that no object has can't be asked for.
	exists := len(content.IsPathSegmentName(g.clusterRole)) == 0
	if exists {
		role, err = t.clients.RbacV1().ClusterRoles().Get(ctx, g.clusterRole, metav1.GetOptions{})
	}
	switch {
	case !exists || apierrors.IsNotFound(err):
		g.unknown = fmt.Sprintf("there is no ClusterRole %q yet, so its rules may be any", g.clusterRole)
		return nil
	case err != nil:
		return fmt.Errorf("read ClusterRole %q: %w", g.clusterRole, err)
	}
	g.rules = role.Rules
	return nil
}

// ownRights says which rules the operator lacks for a template, as the template's status will.
func (t *Template) ownRights(ctx context.Context, base *render.Compiled, kinds []found) ([]string, error) {
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
func (t *Template) ownBindings(ctx context.Context, base *render.Compiled) ([]string, error) {
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
			warnings = append(warnings, fmt.Sprintf(`%s: the operator may not %s: add a ClusterRole with the label %s: "true" and the rule `+
				`{apiGroups: [%q], resources: ["clusterroles"], %sverbs: [bind]}`, g.object, g.power, v1alpha1.AggregateLabel, rbacv1.GroupName, names))
		}
	}
	return warnings, nil
}

func (t *Template) author(user authenticationv1.UserInfo) *author {
	return &author{user: user, reviews: t.clients.AuthorizationV1().SubjectAccessReviews(), answers: map[question]bool{}}
}
