package vetting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	objectschema "nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// review is the vetting of one request.
type review struct {
	*Admission
	edit
	request *webhook.Request
	author  *author
	// unlimited is true if the author holds all rights. judgeKinds sets it.
	unlimited bool
	// others are the outlines of the other templates.
	others []*outline
	// combined are the variants of the updated template, or nil until combinations compiles them.
	combined []render.Variant
	// began is when the vetting began.
	began time.Time
	// catalogs are the schemas of the kinds of rejected objects.
	catalogs map[schema.GroupResource]*objectschema.Catalog
}

// judge returns the problems of an edit, or an error if it cannot judge the edit. The steps that take longest come
// last, when it is known that the author may write such objects.
func (v *review) judge(ctx context.Context) ([]error, error) {
	if v.widens() {
		if problem := render.CheckBudget(v.updated); problem != nil {
			return []error{problem}, nil //nolint:nilerr // it would take too long to judge
		}
	}
	kinds, unserved, problems, err := v.judgeKinds(ctx)
	if err != nil || len(problems) > 0 {
		return slices.Concat(errorsOf(unserved), problems), err
	}
	if !v.widens() {
		return v.judgeUnchanged(ctx)
	}
	if err := render.CheckCombinations(v.updated); err != nil && !v.unlimited && grantsRights(kinds) {
		return []error{fmt.Errorf("cannot check its RBAC objects, since %w: "+
			"declare Roles and RoleBindings in a template of their own", err)}, nil
	}
	if v.others, err = v.Outlines.except(ctx, v.name()); err != nil {
		return nil, err
	}
	for _, judge := range []func(context.Context) ([]error, error){
		func(ctx context.Context) ([]error, error) { return v.judgeSources(ctx, kinds) },
		v.judgeSelectors, v.judgeValues, v.judgeOverlaps,
	} {
		if problems, err = judge(ctx); err != nil || len(problems) > 0 {
			return slices.Concat(errorsOf(unserved), problems), err
		}
	}
	writable, unwritable, err := v.ownRights(ctx, kinds)
	if err != nil {
		return nil, err
	}
	unsuitable, err := v.unsuitableSources(ctx, kinds)
	if err != nil {
		return nil, err
	}
	unwritable = append(unwritable, unsuitable...)
	problems, err = v.judgeCompiled(ctx, kinds, writable, unserved)
	return slices.Concat(errorsOf(unserved), unwritable, problems), err
}

// judgeUnchanged returns the problems of an edit that populates nothing else than before: it prunes objects, or selects
// namespaces for the waves of a rollout. To judge attributes, it may compile the stored template.
func (v *review) judgeUnchanged(ctx context.Context) (problems []error, err error) {
	if v.changesWaves() {
		if v.others, err = v.Outlines.except(ctx, v.name()); err != nil {
			return nil, err
		}
		problems, err = v.judgeSelectors(ctx)
	}
	if err != nil || len(problems) > 0 || !v.prunesAll() {
		return problems, err
	}
	done, err := v.compiling.acquire(ctx, v.request.UserInfo.Username, v.unlimited)
	if err != nil {
		return nil, err
	}
	defer done()
	return v.judgeAttributes(ctx)
}

func errorsOf[P error](problems []P) []error {
	errs := make([]error, 0, len(problems))
	for _, problem := range problems {
		errs = append(errs, problem)
	}
	return errs
}

// distinct returns each problem once: two revisions of a template may cause the same.
func distinct(problems []error) []error {
	seen := map[string]bool{}
	return slices.DeleteFunc(problems, func(problem error) bool {
		isKnown := seen[problem.Error()]
		seen[problem.Error()] = true
		return isKnown
	})
}

// withoutKinds returns problems without those about kinds for which the cluster has told the same in other words.
func withoutKinds(
	template *v1alpha1.NamespaceTemplate, invalid []render.Problem, unserved []kindProblem,
) []render.Problem {
	positions := positionsOf(template)
	return slices.DeleteFunc(slices.Clone(invalid), func(p render.Problem) bool {
		if !p.IsAboutKind() {
			return false
		}
		return slices.ContainsFunc(unserved, func(u kindProblem) bool {
			for _, position := range positions {
				if position.GroupVersionKind == u.kind && isAt(p, position.path) {
					return true
				}
			}
			return false
		})
	})
}

// judgeCompiled compiles the template, judges what it renders, and tries it. writable are the kinds whose objects can
// be tried, and unserved those that are reported already.
func (v *review) judgeCompiled(
	ctx context.Context, kinds, writable []resolvedKind, unserved []kindProblem,
) (problems []error, err error) {
	compiled, problems, err := v.compile(ctx, kinds)
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	done, err := v.trying.acquire(ctx, v.request.UserInfo.Username, v.unlimited)
	if err != nil {
		return nil, err
	}
	defer done()
	problems, err = v.judgeTrials(ctx, writable, compiled.variants, compiled.invalid)
	if err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		problems = compiled.ungrantable // otherwise they are among the problems, in the words of the API server
	}
	rejected, err := v.judgeMetadataTrials(ctx, compiled.invalid)
	return slices.Concat(errorsOf(withoutKinds(v.updated, compiled.invalid, unserved)), problems, rejected), err
}

// compiled is a template that can be tried.
type compiled struct {
	variants    []render.Variant
	invalid     []render.Problem
	ungrantable []error
}

// compile compiles the template and judges the rights that it needs. It returns the problems that make a trial useless.
func (v *review) compile(ctx context.Context, kinds []resolvedKind) (c compiled, problems []error, err error) {
	done, err := v.compiling.acquire(ctx, v.request.UserInfo.Username, v.unlimited)
	if err != nil {
		return c, nil, err
	}
	defer done()
	// The API server decides about schemas. It may be newer than those that the operator knows.
	c.variants, c.invalid = render.VetVariants(ctx, v.updated, nil)
	if err := ctx.Err(); err != nil {
		return c, nil, err
	}
	v.warn(render.Warnings(v.updated)...)
	if len(c.invalid) > 0 {
		c.variants = validVariants(ctx, v.updated, c.invalid)
		return c, nil, nil
	}
	problems, c.ungrantable, err = v.judgeVariants(ctx, kinds, c.variants)
	if err != nil || len(problems) > 0 {
		return c, slices.Concat(c.ungrantable, problems), err
	}
	if v.combined != nil {
		c.variants = v.combined
	}
	return c, nil, nil
}

func (v *review) warn(warnings ...string) {
	v.request.Warnings = append(v.request.Warnings, warnings...)
}

// judgeKinds returns the kinds of a template. unserved are those that the cluster cannot serve. It returns a problem
// for each kind whose objects the author may not write or delete in all namespaces, and for each label of namespaces
// that the author may not set or remove.
func (v *review) judgeKinds(
	ctx context.Context,
) (kinds []resolvedKind, unserved []kindProblem, problems []error, err error) {
	var writes []right
	if v.widens() {
		declared, unknown, warnings, err := v.resolveKinds(render.KindsOf(named(render.AllDeclarations(v.updated))))
		if err != nil {
			return nil, nil, nil, err
		}
		emptied, unnamespaced, more, err := v.resolveKinds(authoritativeKinds(v.updated))
		if err != nil {
			return nil, nil, nil, err
		}
		v.warn(slices.Concat(warnings, more)...)
		unserved = slices.Concat(unknown, unnamespaced)
		for _, kind := range declared {
			writes = append(writes, kind.right("create"), kind.right("patch")) // server-side apply needs both
		}
		for _, kind := range emptied {
			writes = append(writes, kind.right("delete"))
		}
		kinds = slices.Concat(declared, emptied)
	}
	if v.changesNamespaces() {
		writes = append(writes, right{verb: "patch", resource: "namespaces"})
	}
	if v.widens() && len(render.UsedKeys(&v.updated.Spec)) > 0 {
		writes = append(writes, right{verb: "get", resource: "namespaces"}) // the objects show what it renders from
	}
	everything := right{verb: "*", group: "*", resource: "*"}
	missing, err := v.author.missing(ctx, []right{everything})
	if v.unlimited = err == nil && len(missing) == 0; err != nil || v.unlimited {
		return kinds, unserved, nil, err
	}
	if problems, err = v.missing(ctx, writes, v.prunedKinds()); err != nil {
		return nil, nil, nil, err
	}
	required, err := v.judgeRequiredLabels(ctx)
	return kinds, unserved, slices.Concat(problems, required), err
}

// named returns the declarations with a kind and a name. Compiling the template returns an error for the others.
func named(declarations []render.Declaration) []render.Declaration {
	return slices.DeleteFunc(declarations, func(d render.Declaration) bool {
		return d.Kind == "" || d.Version == "" || d.Name == ""
	})
}

// missing returns a problem for each of the writes that the author may not make, and for each of the deleted kinds
// whose objects the author may not delete.
func (v *review) missing(ctx context.Context, writes []right, deleted []schema.GroupVersionKind) ([]error, error) {
	resources, err := v.resolveDeleted(deleted)
	if err != nil {
		return nil, err
	}
	for _, kind := range resources {
		writes = append(writes, kind.right("delete"))
	}
	missing, err := v.author.missing(ctx, writes)
	var problems []error
	for len(missing) > 0 {
		resource := missing[0]
		resource.verb = ""
		var verbs []string
		missing = slices.DeleteFunc(missing, func(r right) bool {
			verb := r.verb
			if r.verb = ""; r == resource {
				verbs = append(verbs, verb)
			}
			return r == resource
		})
		resource.verb = strings.Join(verbs, " or ")
		problems = append(problems,
			rightsProblem{fmt.Errorf("%s may not %s in all namespaces, which this change requires: "+
				"ask an administrator for that right, or to make the change", v.author, resource)})
	}
	return problems, err
}

// combinations returns the variants of the updated template, one for each combination of its overlays.
func (v *review) combinations(ctx context.Context) ([]render.Variant, error) {
	var err error
	if v.combined == nil {
		v.combined, err = render.Variants(ctx, v.updated)
	}
	return v.combined, err
}

// judgeVariants returns a problem for each object that the author could not prune or unprotect, each grant that the
// author could not make, and each protected attribute that the author may not change. ungrantable are the problems of
// invalid RBAC objects. The variants are the template without overlays and with each overlay alone.
func (v *review) judgeVariants(
	ctx context.Context, kinds []resolvedKind, variants []render.Variant,
) (problems, ungrantable []error, err error) {
	complete := true
	if !v.unlimited && (grantsRights(kinds) || patches(v.updated)) {
		combined, err := v.combinations(ctx)
		switch {
		case err == nil:
			variants = combined
		case errors.Is(err, render.ErrCombinations):
			complete = false
		default:
			return nil, nil, err
		}
	}
	if !v.unlimited {
		more, err := v.judgeDeletions(ctx, variants, complete)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, more...)
		if more, err = v.judgeProtection(ctx, variants, complete); err != nil {
			return nil, nil, err
		}
		problems = append(problems, more...)
	}
	v.warnOfProtection()
	grants, ungrantable := grantsOf(variants, func(role string) bool { return v.declaresRole(role) })
	if !v.unlimited {
		more, err := v.judgeGrants(ctx, grants)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, more...)
	}
	protected, err := v.judgeAttributes(ctx)
	return append(problems, protected...), ungrantable, err
}

// grantsRights reports whether the kinds include RBAC objects.
func grantsRights(kinds []resolvedKind) bool {
	return slices.ContainsFunc(kinds, func(kind resolvedKind) bool { return kind.kind.Group == rbacv1.GroupName })
}

// authoritativeKinds returns the kinds whose undeclared objects the template makes the operator delete.
func authoritativeKinds(template *v1alpha1.NamespaceTemplate) []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, 0, len(template.Spec.Authoritative))
	for _, kind := range template.Spec.Authoritative {
		kinds = append(kinds, schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
	}
	return kinds
}
