package populate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/test/controlplane"
)

const (
	worker  = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: worker}, rules: []}"
	reader  = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: worker}, rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]}"
	workers = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: workers}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: worker}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: w}]}"
	viewers = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: viewers}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: worker}}"
)

var (
	workerID  = ObjectID{GroupKind: roleKind, Name: "worker"}
	workersID = ObjectID{GroupKind: bindingKind, Name: "workers"}

	configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

func ids(objects []Object) []string {
	names := []string{}
	for _, object := range objects {
		names = append(names, object.Template.Name+":"+object.GetKind()+"/"+object.GetName())
	}
	return names
}

func TestBindingsOfAnOverriddenRoleAreWithheld(t *testing.T) {
	both := []string{worker, workers, viewers}
	for name, c := range map[string]struct {
		a, b     []string
		applied  []string
		withheld []string
	}{
		"one template": {
			both, nil, []string{"a:Role/worker", "a:RoleBinding/workers", "a:RoleBinding/viewers"}, []string{},
		},
		"a later template declares the Role": {
			both, []string{reader}, []string{"b:Role/worker", "a:RoleBinding/viewers"},
			[]string{"a:RoleBinding/workers"},
		},
		"an earlier template declares the Role": {
			[]string{reader}, []string{worker, workers}, []string{"b:Role/worker", "b:RoleBinding/workers"}, []string{},
		},
		"a later template declares both": {
			both, []string{reader, workers},
			[]string{"b:Role/worker", "b:RoleBinding/workers", "a:RoleBinding/viewers"}, []string{},
		},
		"a later template declares the RoleBinding": {
			both, []string{workers}, []string{"a:Role/worker", "b:RoleBinding/workers", "a:RoleBinding/viewers"},
			[]string{},
		},
		"the template of the RoleBinding does not declare the Role": {
			[]string{workers}, []string{reader}, []string{"a:RoleBinding/workers", "b:Role/worker"}, []string{},
		},
		"the RoleBinding binds a ClusterRole of the same name": {
			[]string{worker, viewers}, []string{reader}, []string{"b:Role/worker", "a:RoleBinding/viewers"}, []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			templates := []*v1alpha1.NamespaceTemplate{templateOf(t, "a", c.a...)}
			if c.b != nil {
				templates = append(templates, templateOf(t, "b", c.b...))
			}
			declared := declare(teamA(), templates...)
			require.Equal(t, c.applied, ids(declared.Objects))
			withheld := []Object{}
			for _, w := range declared.Withheld {
				require.Equal(t, workerID, w.Role)
				require.Equal(t, "b", w.Template)
				withheld = append(withheld, w.Object)
			}
			require.Equal(t, c.withheld, ids(withheld))
		})
	}
}

func TestAWithheldBindingOfBeforeIsDeletedWithTheReason(t *testing.T) {
	rbac := []schema.GroupKind{workerID.GroupKind, workersID.GroupKind}
	a := withKinds(templateOf(t, "a", worker, workers, viewers), rbac...)
	b := withKinds(templateOf(t, "b", reader), rbac...)
	observed := Observed{Objects: []*metav1.PartialObjectMetadata{observedAs(t, "a", workers)}}
	plan := planExempt(nil, observed, a, b)
	require.Len(t, plan.Withheld, 1)
	change := changeOf(t, plan, workersID)
	require.Equal(t, Prune, change.Action)
	require.Equal(t, plan.Withheld[0].Reason(), change.Reason)

	gone := templateOf(t, "a", worker, viewers)
	change = changeOf(t, planExempt(nil, observed, withKinds(gone, rbac...), b), workersID)
	require.Equal(t, Prune, change.Action)
	require.Equal(t, "template a no longer declares it", change.Reason)
}

// observedAs returns the metadata of an object that a template declares and nstpl applied. Other clients changed the
// given paths since.
func observedAs(t *testing.T, template, object string, changed ...fieldpath.Path) *metav1.PartialObjectMetadata {
	t.Helper()
	declaring := templateOf(t, template, object)
	observed := applied(t, declare(teamA(), declaring).Objects[0], changed...)
	observed.UID = types.UID(template + observed.Name)
	return observed
}

func actions(plan Plan) map[ObjectID]string {
	all := map[ObjectID]string{}
	for _, change := range plan.Changes {
		if _, isListed := all[change.ID()]; isListed {
			continue // an overridden declaration of the same object
		}
		all[change.ID()] = string(change.Action)
	}
	return all
}

// RoleBindings of the former template of a Role that another one takes over are deleted if that template exists.
func TestPlansOfRolesThatAnotherTemplateTakesOver(t *testing.T) {
	kinds := []v1alpha1.GroupKind{{Group: roleKind.Group, Kind: "Role"}, {Group: roleKind.Group, Kind: "RoleBinding"}}
	for name, c := range map[string]struct {
		a         []string
		isDeleted bool
		observed  []*metav1.PartialObjectMetadata
		want      map[ObjectID]string
	}{
		"withheld and never applied": {
			[]string{worker, workers}, false, nil, map[ObjectID]string{workerID: "create", workersID: "leave alone"},
		},
		"withheld, and applied before": {
			[]string{worker, workers}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "configure", workersID: "prune"},
		},
		"no longer declared": {
			[]string{settings}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "configure", workersID: "prune"},
		},
		"no longer declared, and the later template already took over the Role": {
			[]string{settings}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "b", reader), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "unchanged", workersID: "prune"},
		},
		"populated by a template that was deleted": {
			nil, true, []*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "configure", workersID: "leave alone"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := templateOf(t, "b", reader)
			all := []*v1alpha1.NamespaceTemplate{b}
			if !c.isDeleted {
				a := templateOf(t, "a", c.a...)
				a.Status.Kinds = kinds
				all = []*v1alpha1.NamespaceTemplate{a, b}
			}
			plan := NewPlan(declare(teamA(), all...), match.NewIndex(all...), Observed{Objects: c.observed})
			got := actions(plan)
			require.Equal(t, c.want, map[ObjectID]string{workerID: got[workerID], workersID: got[workersID]})
		})
	}
}

// A Role that gets rules of another template, or that had none, may be bound by RoleBindings of other clients.
func TestOnlyARoleOfTheSameTemplateContinues(t *testing.T) {
	role := &Object{Template: templateOf(t, "b")}
	reporting := &Object{Template: templateOf(t, "b")}
	reporting.Template.Spec.DriftPolicy = v1alpha1.DriftReport
	ending := observedAs(t, "b", worker)
	ending.DeletionTimestamp = new(metav1.Now())
	own, former, theirs := observedAs(t, "b", worker), observedAs(t, "a", worker), &metav1.PartialObjectMetadata{}
	for name, c := range map[string]struct {
		change Change
		want   bool
	}{
		"new":                     {Change{Action: Create, Declared: role}, false},
		"of the template":         {Change{Action: Configure, Declared: role, Observed: own}, true},
		"of another template":     {Change{Action: Configure, Declared: role, Observed: former}, false},
		"of another client":       {Change{Action: Create, Declared: role, Observed: theirs}, false},
		"deleted":                 {Change{Action: Create, Declared: role, Lost: own}, true},
		"deleted, of another one": {Change{Action: Create, Declared: role, Lost: former}, false},
		"deleted in two steps":    {Change{Action: Create, Declared: role, Lost: ending}, false},
		"deleted, and reported":   {Change{Action: Create, Declared: reporting, Lost: own}, false},
	} {
		c.change.Template = "b"
		require.Equal(t, c.want, c.change.continuesRole(), name)
	}
}

// A RoleBinding that an earlier template of the same name left could bind a Role of this one.
func TestGrantsOfAnEarlierTemplateOfTheSameNameArePruned(t *testing.T) {
	template := templateOf(t, "a", reader)
	observed := Observed{Objects: []*metav1.PartialObjectMetadata{
		observedAs(t, "a", worker), observedAs(t, "a", workers), observedAs(t, "a", settings),
	}}
	plan := NewPlan(declare(teamA(), template), match.NewIndex(template), observed)
	require.Equal(t, map[ObjectID]string{
		workerID: "configure", workersID: "prune",
		{GroupKind: configMapKind.GroupKind(), Name: "settings"}: "leave alone",
	}, actions(plan))
}

// Whether a RoleBinding is applied or deleted depends on the state of its Role and on the outcome of the Role's change.
func TestRoleBindingsDependOnTheOutcomeOfTheirRole(t *testing.T) {
	rules := fieldpath.MakePathOrDie("rules")
	denied := &Failure{Reason: metav1.StatusReasonForbidden, err: errors.New("denied by a policy")}
	later := &Failure{Reason: metav1.StatusReasonInternalError, err: errors.New("etcd is down")}
	for name, c := range map[string]struct {
		role   *metav1.PartialObjectMetadata
		report bool
		// outcome is the outcome of the change of the Role; nil if it needs no write.
		outcome *Outcome
		// waits says that a new RoleBinding waits for the Role, obstacle why it is then not applied, and isUnsafe that
		// an existing RoleBinding is deleted.
		waits    bool
		obstacle metav1.StatusReason
		isUnsafe bool
	}{
		"as declared":              {role: observedAs(t, "a", worker)},
		"created":                  {outcome: &Outcome{Created: true}, waits: true},
		"existed, and was adopted": {outcome: &Outcome{}, waits: true, obstacle: ReasonWaitsForRole},
		"changed": {
			role: observedAs(t, "a", reader), outcome: &Outcome{}, waits: true, obstacle: ReasonWaitsForRole,
		},
		"denied": {
			outcome: &Outcome{Failure: denied}, waits: true, obstacle: ReasonRoleNotAsDeclared, isUnsafe: true,
		},
		"not created because of a transient failure": {
			outcome: &Outcome{Failure: later}, waits: true, obstacle: ReasonRoleNotAsDeclared,
		},
		"a change was denied": {
			role: observedAs(t, "a", reader), outcome: &Outcome{Failure: denied}, waits: true,
			obstacle: ReasonRoleNotAsDeclared,
		},
		"a correction was denied": {
			role: observedAs(t, "a", worker, rules), outcome: &Outcome{Failure: denied}, waits: true,
			obstacle: ReasonRoleNotAsDeclared, isUnsafe: true,
		},
		"a change of a drifted Role was denied": {
			role: observedAs(t, "a", reader, rules), outcome: &Outcome{Failure: denied}, waits: true,
			obstacle: ReasonRoleNotAsDeclared, isUnsafe: true,
		},
		"drift that is reported": {
			role: observedAs(t, "a", worker, rules), report: true, waits: true, obstacle: ReasonRoleNotAsDeclared,
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, "a", worker, workers)
			if c.report {
				template.Spec.DriftPolicy = v1alpha1.DriftReport
			}
			observed := Observed{Objects: []*metav1.PartialObjectMetadata{observedAs(t, "a", workers)}}
			if c.role != nil {
				observed.Objects = append(observed.Objects, c.role)
			}
			plan := NewPlan(declare(teamA(), template), match.NewIndex(template), observed)
			roles := rolesOf(plan)
			role, binding := plan.Changes[0], plan.Changes[1]
			require.Equal(t, workerID, role.ID())
			require.Equal(t, workersID, binding.ID())
			require.Equal(t, c.waits, roles.mustWait(binding))
			require.False(t, roles.mustWait(role))
			if c.outcome != nil {
				c.outcome.Change = role
				roles.addOutcomes([]Outcome{*c.outcome})
			}
			if c.waits {
				var reason metav1.StatusReason
				if obstacle := roles.obstacle(binding); obstacle != nil {
					reason = obstacle.Reason
				}
				require.Equal(t, c.obstacle, reason)
			}
			require.Equal(t, c.isUnsafe, len(roles.unsafeBindings(plan)) == 1)
		})
	}
}

func TestDeletionsWaitForFailedAppliesOfTheSameKind(t *testing.T) {
	transient := &Failure{
		Reason: metav1.StatusReasonServiceUnavailable, RetryAfter: time.Second, err: errors.New("unavailable"),
	}
	invalid := &Failure{Reason: metav1.StatusReasonInvalid, err: errors.New("roleRef can't change")}
	inTheWay := &Failure{Reason: metav1.StatusReasonInvalid, InTheWay: true, err: errors.New("roleRef can't change")}
	full := NewFailure(apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "new",
		errors.New("exceeded quota: few, requested: count/rolebindings=1")), "team-a")
	binding := Change{Action: Create, Kind: bindingKind.WithVersion("v1"), Name: "new"}
	settings := Change{Action: Create, Kind: configMapKind, Name: "new"}
	prunes := []Change{
		{Action: Prune, Kind: bindingKind.WithVersion("v1"), Name: "old"},
		{Action: Prune, Kind: bindingKind.WithVersion("v1"), Name: "undeclared", Undeclared: true},
		{Action: Prune, Kind: configMapKind, Name: "old"},
		{Action: Prune, Kind: configMapKind, Name: "undeclared", Undeclared: true},
	}
	const grants, others = "RoleBinding/old RoleBinding/undeclared", "ConfigMap/old ConfigMap/undeclared"
	for name, c := range map[string]struct {
		outcomes []Outcome
		want     string
	}{
		"all applies succeeded": {
			[]Outcome{{Change: binding}, {Change: settings}}, "[" + grants + " " + others + "]",
		},
		"a RoleBinding failed transiently": {[]Outcome{{Change: binding, Failure: transient}}, "[" + others + "]"},
		"a RoleBinding failed in a way that users can cause": {
			[]Outcome{{Change: binding, Failure: invalid}}, "[RoleBinding/old " + others + "]",
		},
		"only users can have caused that a RoleBinding failed": {[]Outcome{
			{Change: binding, Failure: full}, {Change: binding, Failure: inTheWay},
		}, "[" + grants + " " + others + "]"},
		"a quota is full": {
			[]Outcome{{Change: settings, Failure: full}}, "[" + grants + " ConfigMap/undeclared]",
		},
		"two RoleBindings failed, one in a way that users can cause": {[]Outcome{
			{Change: binding, Failure: transient}, {Change: binding, Failure: invalid},
		}, "[" + others + "]"},
		"an object of another kind failed": {
			[]Outcome{{Change: settings, Failure: invalid}}, "[" + grants + "]",
		},
		"a deletion failed": {
			[]Outcome{{Change: prunes[0], Failure: transient}},
			"[" + grants + " " + others + "]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var kept []string
			for _, change := range allowedPrunes(prunes, c.outcomes) {
				kept = append(kept, change.Kind.Kind+"/"+change.Name)
			}
			require.Equal(t, c.want, fmt.Sprint(kept))
		})
	}
}

// Only what its own template declares is excepted: the author of another template was not checked for its rules.
func TestABindingRemainsInReportWithItsRoleOnly(t *testing.T) {
	t.Parallel()
	reporting, other := templateOf(t, "a"), templateOf(t, "b")
	reporting.Spec.DriftPolicy = v1alpha1.DriftReport
	binding := func(declared *v1alpha1.NamespaceTemplate, label string) Change {
		change := Change{Observed: observedAs(t, label, workers)}
		if declared != nil {
			change.Declared = &Object{Template: declared}
		}
		return change
	}
	for name, c := range map[string]struct {
		binding Change
		role    *v1alpha1.NamespaceTemplate
		want    bool
	}{
		"of one template":             {binding(reporting, "a"), reporting, true},
		"of a template that corrects": {binding(other, "b"), other, false},
		"no longer declared":          {binding(nil, "a"), reporting, false},
		"populated by another":        {binding(reporting, "b"), reporting, false},
		"with the Role of another":    {binding(reporting, "a"), other, false},
	} {
		p := &pass{declared: map[ObjectID]*Object{workerID: {Template: c.role}}}
		require.Equal(t, c.want, p.remainsInReport(c.binding, workerID), name)
	}
}

// A RoleBinding loses the subjects that its template takes away. One whose users change it meanwhile, also all the
// time, loses all.
func TestUsersWhoChangeARoleBindingKeepNoSubject(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	mapper := apimeta.NewDefaultRESTMapper(nil)
	kind := bindingKind.WithVersion("v1")
	mapper.Add(kind, apimeta.RESTScopeNamespace)
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
	}
	declared := []*unstructured.Unstructured{{Object: map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": "worker"},
		"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": "w"}},
	}}}
	for i, test := range []struct {
		// changed is how many patches of the operator come right after a change by a user, of how many in all.
		changed, patches int
		want             []rbacv1.Subject
	}{{0, 1, []rbacv1.Subject{user("w")}}, {1, 3, nil}, {3, 3, nil}} {
		bindings := api.RbacV1().RoleBindings("default")
		binding, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("workers-", i)},
			Subjects:   []rbacv1.Subject{user("w"), user("v")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		before := &beforePatches{call: func(number int) {
			if number < test.changed {
				later, err := bindings.Get(t.Context(), binding.Name, metav1.GetOptions{})
				require.NoError(t, err)
				later.Subjects = append(later.Subjects, user(fmt.Sprint("thief-", number)))
				_, err = bindings.Update(t.Context(), later, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
		}}
		config := before.wrap(cluster.RESTConfig())
		client, err := metadata.NewForConfig(config)
		require.NoError(t, err)
		objects, err := dynamic.NewForConfig(config)
		require.NoError(t, err)
		p := newPass(NewApplier(client, objects, apimeta.ToRESTMapperWithContext(mapper), 1, nil),
			Plan{Declared: Declared{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}}, nil)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(binding)
		require.NoError(t, err)
		change := Change{Kind: kind, Name: binding.Name, Observed: &metav1.PartialObjectMetadata{
			ObjectMeta: binding.ObjectMeta,
		}}
		outcome := p.narrow(t.Context(), change, &unstructured.Unstructured{Object: content},
			declared)
		require.Nil(t, outcome.Failure, "%v", outcome.Failure)
		require.Equal(t, test.patches, before.patches)
		binding, err = bindings.Get(t.Context(), binding.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, test.want, binding.Subjects)
		require.Equal(t, binding.ResourceVersion, outcome.Observed.ResourceVersion)
	}
}
