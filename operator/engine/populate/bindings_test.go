package populate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
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
	workerID  = ObjectID{roleKind, "worker"}
	workersID = ObjectID{bindingKind, "workers"}

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
		"a later one has the Role": {
			both, []string{reader}, []string{"b:Role/worker", "a:RoleBinding/viewers"},
			[]string{"a:RoleBinding/workers"},
		},
		"an earlier one has the Role": {
			[]string{reader}, []string{worker, workers}, []string{"b:Role/worker", "b:RoleBinding/workers"}, []string{},
		},
		"a later one has both": {
			both, []string{reader, workers},
			[]string{"b:Role/worker", "b:RoleBinding/workers", "a:RoleBinding/viewers"}, []string{},
		},
		"a later one has the binding": {
			both, []string{workers}, []string{"a:Role/worker", "b:RoleBinding/workers", "a:RoleBinding/viewers"},
			[]string{},
		},
		"the binding's never had the Role": {
			[]string{workers}, []string{reader}, []string{"a:RoleBinding/workers", "b:Role/worker"}, []string{},
		},
		"a ClusterRole is of no other Role's": {
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

// observedAs returns what the API server keeps of an object that a template applied.
func observedAs(t *testing.T, template, object string, taken ...fieldpath.Path) *metav1.PartialObjectMetadata {
	t.Helper()
	of := templateOf(t, template, object)
	observed := applied(t, declare(teamA(), of).Objects[0], taken...)
	observed.UID = types.UID(template + observed.Name)
	return observed
}

func actions(plan Plan) map[ObjectID]string {
	all := map[ObjectID]string{}
	for _, change := range plan.Changes {
		if _, known := all[change.ID()]; known {
			continue // an overridden declaration of the same object
		}
		text := string(change.Action)
		if change.Revoked {
			text += ", revoked"
		}
		all[change.ID()] = text
	}
	return all
}

// A Role that another template takes over must not be bound by what is left of the former one.
func TestARoleChangesHandsAfterItsBindings(t *testing.T) {
	kinds := []v1alpha1.GroupKind{{Group: roleKind.Group, Kind: "Role"}, {Group: roleKind.Group, Kind: "RoleBinding"}}
	for name, c := range map[string]struct {
		a        []string
		gone     bool
		observed []*metav1.PartialObjectMetadata
		want     map[ObjectID]string
	}{
		"withheld and never applied": {
			[]string{worker, workers}, false, nil, map[ObjectID]string{workerID: "create", workersID: "leave alone"},
		},
		"withheld from now on": {
			[]string{worker, workers}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "configure", workersID: "prune, revoked"},
		},
		"no longer declared": {
			[]string{settings}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "configure", workersID: "prune, revoked"},
		},
		"no longer declared, where the Role is the later template's already": {
			[]string{settings}, false,
			[]*metav1.PartialObjectMetadata{observedAs(t, "b", reader), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "unchanged", workersID: "prune"},
		},
		"left by a template that is gone": {
			nil, true, []*metav1.PartialObjectMetadata{observedAs(t, "a", worker), observedAs(t, "a", workers)},
			map[ObjectID]string{workerID: "unknown", workersID: "leave alone"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := templateOf(t, "b", reader)
			all := []*v1alpha1.NamespaceTemplate{b}
			if !c.gone {
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

// What becomes of a RoleBinding follows from what was known of its Role before, and what became of it.
func TestABindingFollowsItsRole(t *testing.T) {
	rules := fieldpath.MakePathOrDie("rules")
	refused := &Failure{Reason: metav1.StatusReasonForbidden, err: errors.New("denied by a policy")}
	later := &Failure{Reason: metav1.StatusReasonInternalError, err: errors.New("etcd is down")}
	for name, c := range map[string]struct {
		role   *metav1.PartialObjectMetadata
		report bool
		// became is what became of the Role; nil where nothing is tried.
		became *Outcome
		// waits is whether a new RoleBinding waits for it, obstacle why it then can't be applied, and unsafeBindings whether
		// one that exists goes.
		waits     bool
		obstacle  metav1.StatusReason
		unsafeBindings bool
	}{
		"as declared":           {role: observedAs(t, "a", worker)},
		"created":               {became: &Outcome{Created: true}, waits: true},
		"existed, and is taken": {became: &Outcome{}, waits: true, obstacle: ReasonWaitsForRole},
		"changed": {
			role: observedAs(t, "a", reader), became: &Outcome{}, waits: true, obstacle: ReasonWaitsForRole,
		},
		"refused": {
			became: &Outcome{Failure: refused}, waits: true, obstacle: ReasonRoleNotAsDeclared, unsafeBindings: true,
		},
		"not created for now": {became: &Outcome{Failure: later}, waits: true, obstacle: ReasonRoleNotAsDeclared},
		"a change refused": {
			role: observedAs(t, "a", reader), became: &Outcome{Failure: refused}, waits: true,
			obstacle: ReasonRoleNotAsDeclared,
		},
		"a correction refused": {
			role: observedAs(t, "a", worker, rules), became: &Outcome{Failure: refused}, waits: true,
			obstacle: ReasonRoleNotAsDeclared, unsafeBindings: true,
		},
		"a change of a drifted one": {
			role: observedAs(t, "a", reader, rules), became: &Outcome{Failure: refused}, waits: true,
			obstacle: ReasonRoleNotAsDeclared, unsafeBindings: true,
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
			require.Equal(t, c.waits, roles.waits(binding))
			require.False(t, roles.waits(role))
			if c.became != nil {
				c.became.Change = role
				roles.record([]Outcome{*c.became})
			}
			if c.waits {
				var reason metav1.StatusReason
				if obstacle := roles.obstacle(binding); obstacle != nil {
					reason = obstacle.Reason
				}
				require.Equal(t, c.obstacle, reason)
			}
			require.Equal(t, c.unsafeBindings, len(roles.unsafeBindings(plan)) == 1)
		})
	}
}

func TestDeletionsWaitForWhatMayReplaceThem(t *testing.T) {
	transient := &Failure{
		Reason: metav1.StatusReasonServiceUnavailable, RetryAfter: time.Second, err: errors.New("unavailable"),
	}
	invalid := &Failure{Reason: metav1.StatusReasonInvalid, err: errors.New("roleRef can't change")}
	binding := Change{Action: Create, Kind: bindingKind.WithVersion("v1"), Name: "new"}
	settings := Change{Action: Create, Kind: configMapKind, Name: "new"}
	prunes := []Change{
		{Action: Prune, Kind: bindingKind.WithVersion("v1"), Name: "old"},
		{Action: Prune, Kind: bindingKind.WithVersion("v1"), Name: "undeclared", Undeclared: true},
		{Action: Prune, Kind: configMapKind, Name: "old"},
	}
	for name, c := range map[string]struct {
		outcomes []Outcome
		want     string
	}{
		"all is well": {
			[]Outcome{{Change: binding}, {Change: settings}}, "[RoleBinding/old RoleBinding/undeclared ConfigMap/old]",
		},
		"another template's binding": {[]Outcome{{Change: binding, Failure: transient}}, "[ConfigMap/old]"},
		"what a user can bring about": {
			[]Outcome{{Change: binding, Failure: invalid}}, "[RoleBinding/old ConfigMap/old]",
		},
		"both": {[]Outcome{
			{Change: binding, Failure: transient}, {Change: binding, Failure: invalid},
		}, "[ConfigMap/old]"},
		"a kind that grants nothing": {
			[]Outcome{{Change: settings, Failure: invalid}}, "[RoleBinding/old RoleBinding/undeclared]",
		},
		"a deletion that failed": {
			[]Outcome{{Change: prunes[0], Failure: transient}},
			"[RoleBinding/old RoleBinding/undeclared ConfigMap/old]",
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
