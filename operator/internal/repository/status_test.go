package repository

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

func TestConditionOf(t *testing.T) {
	t.Parallel()
	const applied = "0123456789abcdef0123456789abcdef01234567"
	tree := &vetted{commit: applied}
	ofPath := &vetted{commit: applied, path: "before"}
	id := inventory.ID{GroupKind: schema.GroupKind{Kind: "Namespace"}, Name: "a"}
	waits := &problem{reason: "Unreachable", message: "no answer", passes: true}
	wrong := &problem{reason: v1alpha1.RepositoryViolations, message: "a rule is broken"}
	remaining := &outcome{remaining: 2}
	deleting := &outcome{Plan: inventory.Plan{Conflicts: []inventory.Conflict{{ID: id, Reason: "goes", Passes: true}}}}
	taken := &outcome{Plan: inventory.Plan{Conflicts: []inventory.Conflict{
		{ID: id, Reason: "goes", Passes: true}, {ID: id, Reason: "taken"},
	}}}
	failed := &outcome{failures: []failure{{id, errors.New("denied")}}}
	kept := &outcome{Plan: inventory.Plan{Protected: []string{"a", "b"}}}
	ofTemplates := &outcome{Plan: inventory.Plan{TemplateValues: []inventory.TemplateValue{
		{Namespace: "a", MetadataKey: render.MetadataKey{Field: render.Labels, Key: "tier"}, Template: "defaults"},
	}}}
	single := &outcome{Plan: inventory.Plan{Unmanaged: []string{"a"}, Used: []string{"s"}, Delayed: []inventory.Rollout{
		{Template: "t", State: v1alpha1.RolloutPaused}, {Template: "u", State: v1alpha1.RolloutPaused},
	}}}
	fought := &outcome{contested: []contested{{id, "a client changes it"}, {id, "another changes it"}}}
	waiting := &outcome{Plan: inventory.Plan{Waiting: []string{"a"}}}
	for name, test := range map[string]struct {
		known   answer
		outcome *outcome
		want    condition
	}{
		"nothing is known yet": {
			want: condition{reporting.InProgress, v1alpha1.RepositoryProgressing, "the source is being fetched"},
		},
		"in force": {
			known: answer{tree: tree}, outcome: &outcome{},
			want: condition{reporting.Current, v1alpha1.RepositorySynced, "commit 0123456 is in force"},
		},
		"protected namespaces are kept": {
			known: answer{tree: tree}, outcome: kept,
			want: condition{reporting.Current, v1alpha1.RepositorySynced, "commit 0123456 is in force; kept, because protected from " +
				"deletion: 2 namespaces that the tree no longer declares, the first is a: to have it deleted, a user with " +
				"the verb unprotect on it must remove its annotation policy.nstpl.dev/deletion-protection, after which the " +
				"commit may need a confirmation"},
		},
		"one of everything": {
			known: answer{tree: tree}, outcome: single,
			want: condition{reporting.Current, v1alpha1.RepositorySynced, "commit 0123456 is in force; not managed: 1 namespace that the " +
				"tree declares and that existed before, the first is a: set existingNamespaces to Adopt, or annotate them with " +
				"policy.nstpl.dev/adopt=true; kept, because namespaces are in or below it: 1 policyspace that the tree no longer " +
				"declares, the first is s: delete the namespaces, or move them to another policyspace; template t does not " +
				"reach all namespaces yet, because its rollout is paused: see kubectl nstpl rollout status t (and 1 more)"},
		},
		"one object remains": {known: answer{tree: tree}, outcome: &outcome{remaining: 1}, want: condition{
			reporting.InProgress, v1alpha1.RepositoryProgressing, "commit 0123456 is being applied: 1 object left",
		}},
		"templates have set labels": {
			known: answer{tree: tree}, outcome: ofTemplates,
			want: condition{reporting.Current, v1alpha1.RepositorySynced, "commit 0123456 is in force; in 1 namespace, templates " +
				"set labels or annotations that the tree declares differently, the first is the label tier of namespace a, by " +
				"template defaults: remove it from the tree or from the template"},
		},
		"objects remain": {known: answer{tree: tree}, outcome: remaining, want: condition{
			reporting.InProgress, v1alpha1.RepositoryProgressing, "commit 0123456 is being applied: 2 objects left",
		}},
		"objects of the commit in force remain, and a newer one is wrong": {known: answer{tree: tree, problem: wrong},
			outcome: remaining, want: condition{
				reporting.InProgress, v1alpha1.RepositoryProgressing, "commit 0123456 is being applied: 2 objects left",
			}},
		"the server does not answer": {known: answer{tree: tree, problem: waits}, outcome: &outcome{}, want: condition{
			reporting.InProgress, "Unreachable", "no answer; commit 0123456 stays in force",
		}},
		"the server does not answer after a restart": {
			known: answer{problem: waits, inForce: &committed{commit: applied}},
			want:  condition{reporting.InProgress, "Unreachable", "no answer; commit 0123456 stays in force"},
		},
		"the server never answered": {
			known: answer{problem: waits, inForce: &committed{}},
			want:  condition{reporting.InProgress, "Unreachable", "no answer; no commit is in force yet"},
		},
		"the record cannot be read after a restart": {
			known: answer{problem: waits},
			want:  condition{reporting.InProgress, "Unreachable", "no answer; the commit in force is unknown"},
		},
		"a newer commit is wrong": {known: answer{tree: tree, problem: wrong}, outcome: &outcome{}, want: condition{
			reporting.Failed, v1alpha1.RepositoryViolations, "a rule is broken; commit 0123456 stays in force",
		}},
		"a newer commit is wrong at a changed path": {
			known: answer{tree: ofPath, problem: wrong, path: "after"}, outcome: &outcome{}, want: condition{
				reporting.Failed, v1alpha1.RepositoryViolations,
				"a rule is broken; the tree at the path before of commit 0123456 stays in force",
			},
		},
		"an object is being deleted": {known: answer{tree: tree}, outcome: deleting, want: condition{
			reporting.InProgress, v1alpha1.RepositoryProgressing, "namespace/a: goes",
		}},
		"an object is being deleted, and another has a conflict": {known: answer{tree: tree}, outcome: taken,
			want: condition{
				reporting.Failed, v1alpha1.RepositoryObjectsFailed, "namespace/a: taken (and 1 more)",
			}},
		"an object cannot be written": {known: answer{tree: tree}, outcome: failed, want: condition{
			reporting.Failed, v1alpha1.RepositoryObjectsFailed, "namespace/a: denied",
		}},
		"an object cannot be written, and the server does not answer": {
			known: answer{tree: tree, problem: waits}, outcome: failed, want: condition{
				reporting.Failed, v1alpha1.RepositoryObjectsFailed, "no answer; besides, namespace/a: denied",
			},
		},
		"an object cannot be written, and a newer commit is wrong": {
			known: answer{tree: tree, problem: &problem{message: "wrong", violationCount: 1}}, outcome: failed,
			want: condition{reporting.Failed, v1alpha1.RepositoryObjectsFailed, "namespace/a: denied"},
		},
		"objects are changed again and again": {known: answer{tree: tree}, outcome: fought, want: condition{
			reporting.Failed, v1alpha1.RepositoryContested,
			"commit 0123456 is applied, but namespace/a: a client changes it (and 1 more)",
		}},
		"another tree may take objects over": {
			known: answer{tree: tree}, outcome: &outcome{Plan: inventory.Plan{Undecided: []inventory.ID{
				{GroupKind: schema.GroupKind{Kind: "Namespace"}, Name: "a"}, {},
			}}},
			want: condition{
				reporting.Current, v1alpha1.RepositorySynced, "commit 0123456 is in force; kept until the tree that the label " +
					"policy.nstpl.dev/tree names has taken them over, or was read and does not declare them: 2 objects " +
					"that this tree no longer declares, the first is namespace/a",
			},
		},
		"deletions wait": {known: answer{tree: tree}, outcome: waiting, want: condition{
			reporting.Failed, v1alpha1.RepositoryDeletionsPending,
			"commit 0123456 is in force, but would delete 1 namespace: see them " +
				"with kubectl nstpl sync status, and confirm with kubectl nstpl sync confirm",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, conditionOf(test.known, test.outcome))
		})
	}
}

// No event tells that the namespaces of others have left a policyspace that the status says is kept because of them.
func TestUsedPolicySpacesDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	used := outcome{Plan: inventory.Plan{Used: []string{"s"}}}
	require.Equal(t, retryUsed, used.wait(24*time.Hour))
	require.Equal(t, time.Second, used.wait(time.Second))
}
