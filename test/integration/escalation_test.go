package integration_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/escalation"
	"nstpl.dev/nstpl/test/marks"
)

var (
	escalationFor = flag.Duration("escalation.for", time.Minute,
		"how long to search for escalations; rounds that have begun are completed")
	escalationSeed = flag.Uint64("escalation.seed", 1,
		"seed of the rounds; 0 chooses a random seed")
	escalationRound = flag.Int("escalation.round", -1, "the only round to run, repeatedly; -1 runs every round once")
)

const (
	// escalationParallelRounds is the number of rounds that run at the same time.
	escalationParallelRounds = 4
	// escalationFailures is the number of failed rounds after which no other round begins.
	escalationFailures = 3
)

// Random authors write random templates for namespaces that contain objects of others. Whatever the operator then
// creates, changes, deletes or grants at any moment, an author of the responsible template could have done directly. To
// run it longer:
//
//	go test ./test/integration -run 'TestEscalation$' -timeout 0 -args -escalation.for=1h -escalation.seed=0
func TestEscalation(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	f := newFuzzer(t)
	deadline := time.Now().Add(*escalationFor)
	var lanes sync.WaitGroup
	for range escalationParallelRounds {
		lanes.Go(func() {
			for time.Now().Before(deadline) && f.failures.Load() < escalationFailures {
				f.playRound(t)
			}
		})
	}
	lanes.Wait()
	t.Logf("seed %d: %d rounds in %s; templates were written %d times and denied %d times; the operator wrote %d objects", f.seed, f.next.Load(),
		time.Since(f.begin).Round(time.Second), f.accepted.Load(), f.denied.Load(), f.judged.Load())
	require.Positive(t, f.accepted.Load())
	require.Positive(t, f.denied.Load())
	require.Positive(t, f.judged.Load())
}

type fuzzer struct {
	*testCluster
	recorder *recorder
	seed     uint64
	begin    time.Time
	// clusterRoles has the rules of all ClusterRoles by name.
	clusterRoles map[string][]rbacv1.PolicyRule
	// next is the number of rounds so far, accepted and denied are numbers of template writes, judged is the number of
	// the operator's writes, and failures is the number of failed rounds.
	next, accepted, denied, judged, failures atomic.Int64
}

func newFuzzer(t *testing.T) *fuzzer {
	t.Helper()
	f := &fuzzer{
		testCluster: borrowCluster(t), seed: *escalationSeed, begin: time.Now(),
		clusterRoles: map[string][]rbacv1.PolicyRule{},
	}
	if f.seed == 0 {
		f.seed = rand.Uint64()
	}
	t.Logf("-escalation.seed=%d", f.seed)
	t.Cleanup(func() { require.NoError(t, removeRoleFinalizers(context.Background(), f.client)) })
	f.recorder = newRecorder(t, f.testCluster, "round", recordedKinds...)
	roles := &rbacv1.ClusterRoleList{}
	require.NoError(t, f.client.List(t.Context(), roles))
	for _, role := range roles.Items {
		f.clusterRoles[role.Name] = role.Rules
	}
	_, err := f.kubectl(t.Context(), denyLabeledRolesPolicy, "apply", "--filename", "-")
	require.NoError(t, err)
	probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "probe-of-refusal", Labels: map[string]string{escalation.RefuseLabel: "true"},
	}}
	require.NoError(t, f.client.Create(t.Context(), probe))
	operator := f.impersonate(t, operatorUser)
	require.NoError(t,
		wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				_, err := operator.RbacV1().Roles(probe.Name).Create(ctx,
					&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return apierrors.IsInvalid(err), nil
			}))
	return f
}

// denyLabeledRolesPolicy has the API server deny Roles of the operator if they or their namespaces have a label.
const denyLabeledRolesPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-roles}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [rbac.authorization.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [roles]}]
  matchConditions: [{name: operator, expression: "request.userInfo.username == '` + operatorUser + `'"}]
  validations:
  - expression: >-
      object.metadata.?labels['` + escalation.RefuseLabel + `'].orValue('') != 'true' &&
      namespaceObject.metadata.?labels['` + escalation.RefuseLabel + `'].orValue('') != 'true'
    message: "this cluster does not take this Role"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-roles}
spec: {policyName: refuse-roles, validationActions: [Deny]}
`

// removeRoleFinalizers removes the finalizers of the Roles that templates declared, so that their namespaces can be
// deleted.
func removeRoleFinalizers(ctx context.Context, as client.Client) error {
	roles := &rbacv1.RoleList{}
	if err := as.List(ctx, roles); err != nil {
		return err
	}
	for i := range roles.Items {
		if len(roles.Items[i].Finalizers) == 0 {
			continue
		}
		err := as.Patch(ctx, &roles.Items[i], mergePatch(`{"metadata": {"finalizers": null}}`))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// playRound runs the next round, and reports the operator's writes that no author could have made.
func (f *fuzzer) playRound(t *testing.T) {
	t.Helper()
	turn := f.next.Add(1) - 1
	number := turn
	if *escalationRound >= 0 {
		number = int64(*escalationRound)
	}
	random := rand.New(rand.NewPCG(f.seed, uint64(number)))
	r := &roundRunner{
		fuzzer: f, round: escalation.NewRound(random, fmt.Sprintf("round%d", turn)), users: map[string]client.Client{},
	}
	violations, err := r.run(t.Context())
	if err != nil {
		f.failures.Add(1)
		t.Errorf("round %d: %v\n%s", number, err, r.round)
		return
	}
	if len(violations) == 0 {
		return
	}
	f.failures.Add(1)
	var list strings.Builder
	for _, violation := range violations {
		fmt.Fprintf(&list, "- %.2000s\n", violation)
	}
	t.Errorf("after %s, -escalation.seed=%d -escalation.round=%d: the operator wrote what no author of the templates could have written:\n%s\nwhat happened:\n%s\n%s",
		time.Since(f.begin).Round(time.Second), f.seed, number, &list, strings.Join(r.log, "\n"), r.round)
}

// roundRunner runs a round.
type roundRunner struct {
	*fuzzer
	round escalation.Round
	// users has the clients of users by name.
	users map[string]client.Client
	// namespaces have the labels that the round wrote last.
	namespaces []*unstructured.Unstructured
	settled    []uint64
	settler    *settler
	log        []string
}

func (r *roundRunner) run(ctx context.Context) ([]escalation.Violation, error) {
	r.settler = &settler{client: r.client, id: r.round.Name}
	if err := r.createAuthor(ctx); err != nil {
		return nil, fmt.Errorf("the author: %w", err)
	}
	for i, step := range r.round.Steps {
		if err := r.runStep(ctx, step); err != nil {
			return nil, fmt.Errorf("step %d, %s: %w", i, step.Action, err)
		}
	}
	if _, err := r.recorder.waitRecorded(ctx); err != nil {
		return nil, err
	}
	records := slices.DeleteFunc(r.recorder.finishRecords(r.round.Name+"-"), func(record escalation.Record) bool {
		return strings.HasSuffix(record.Object.GetName(), settledName)
	})
	r.logRecords(records)
	history := escalation.History{
		Records: records, ClusterRoles: r.clusterRoles, Settled: r.settled,
		Authors: map[string]escalation.Author{
			r.round.Author.Name: r.round.Author, escalation.Admin: escalation.Administrator(escalation.Admin),
		},
	}
	return escalation.Judge(history), r.cleanUp(ctx)
}

// logRecords adds the recorded writes and their writers to the log.
func (r *roundRunner) logRecords(records []escalation.Record) {
	slices.SortFunc(records, func(a, b escalation.Record) int { return int(a.Revision) - int(b.Revision) })
	for _, record := range records {
		what := "wrote"
		if record.Deleted {
			what = "deleted"
		}
		o := record.Object
		writer := record.Writer
		if writer == "" {
			if o.GetNamespace() == "" {
				continue // the operator wrote the status or a finalizer of a template or namespace
			}
			writer = "operator"
			r.judged.Add(1)
		}
		grants := ""
		for _, field := range []string{"rules", "roleRef", "subjects"} {
			if value, found := o.Object[field]; found {
				grants += fmt.Sprintf(" %s=%v", field, value)
			}
		}
		r.log = append(r.log,
			fmt.Sprintf("%d: %s %s %s %s/%s (template %q)%s", record.Revision, writer, what, o.GetKind(),
				o.GetNamespace(), o.GetName(),
				o.GetLabels()[v1alpha1.TemplateNameLabel], grants))
	}
}

// createAuthor grants the author's permissions, and returns when the API server knows them.
func (r *roundRunner) createAuthor(ctx context.Context) error {
	r.users[escalation.Admin] = r.client
	author := r.round.Author
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: author.Name}, Rules: author.Rules}
	if err := r.client.Create(ctx, role); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: author.Name}, Subjects: []rbacv1.Subject{userSubject(author.Name)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: author.Name},
	}
	if err := r.client.Create(ctx, binding); err != nil {
		return err
	}
	user, err := r.newUserClient(author.Name)
	if err != nil {
		return err
	}
	r.users[author.Name] = user
	return wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			probe := &v1alpha1.NamespaceTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: r.round.Name + "-probe"},
				Spec:       v1alpha1.NamespaceTemplateSpec{Namespaces: selectLabel("no", "namespace")},
			}
			return user.Create(ctx, probe, client.DryRunAll) == nil, nil
		})
}

func (r *roundRunner) runStep(ctx context.Context, step escalation.Step) error {
	switch step.Action {
	case escalation.WriteTemplate:
		return r.countAnswer(step, r.writeTemplate(ctx, step))
	case escalation.DeleteTemplate:
		return r.countAnswer(step, r.deleteTemplate(ctx, step))
	case escalation.CreateNamespace:
		return r.createNamespace(ctx, step.Object.DeepCopy())
	case escalation.LabelNamespace:
		return r.labelNamespace(ctx, step.Object)
	case escalation.PutObject:
		put := step.Object.DeepCopy()
		err := r.client.Create(ctx, put)
		switch {
		case apierrors.IsAlreadyExists(err), apierrors.IsForbidden(err): // it exists, or a quota forbids it
			return nil
		case err != nil:
			return err
		}
		r.recorder.noteWrite(escalation.Admin, put)
		return nil
	case escalation.Settle:
		return r.settle(ctx)
	}
	return fmt.Errorf("unknown action %q", step.Action)
}

// countAnswer counts allowed and denied requests for templates. Any other error ends the round.
func (r *roundRunner) countAnswer(step escalation.Step, err error) error {
	switch {
	case err == nil:
		r.accepted.Add(1)
		r.log = append(r.log, fmt.Sprintf("%s may %s %s", step.User, step.Action, step.Object.GetName()))
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		r.denied.Add(1)
		r.log = append(r.log,
			fmt.Sprintf("%s may not %s %s: %.300s", step.User, step.Action, step.Object.GetName(), err))
	default:
		return err
	}
	return nil
}

// writeTemplate creates or replaces a template. It retries conflicts with the operator, which writes the status.
func (r *roundRunner) writeTemplate(ctx context.Context, step escalation.Step) error {
	return retry.OnError(wait.Backoff{Steps: 20, Duration: 5 * time.Millisecond}, apierrors.IsConflict, func() error {
		written := step.Object.DeepCopy()
		found := &v1alpha1.NamespaceTemplate{}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(written), found)
		switch {
		case apierrors.IsNotFound(err):
			err = r.users[step.User].Create(ctx, written)
		case err == nil:
			written.SetResourceVersion(found.ResourceVersion)
			written.SetFinalizers(found.Finalizers)
			err = r.users[step.User].Update(ctx, written)
		}
		if err == nil && written.GetResourceVersion() != found.ResourceVersion {
			r.recorder.noteWrite(step.User, written)
		}
		return err
	})
}

func (r *roundRunner) deleteTemplate(ctx context.Context, step escalation.Step) error {
	found := &v1alpha1.NamespaceTemplate{}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(step.Object), found); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.recorder.noteDeletion(step.User, found)
	return client.IgnoreNotFound(r.users[step.User].Delete(ctx, found))
}

// createNamespace creates a namespace as the user that its creator annotation names.
func (r *roundRunner) createNamespace(ctx context.Context, ns *unstructured.Unstructured) error {
	creator, err := r.newUserClient(ns.GetAnnotations()[v1alpha1.CreatorAnnotation], "system:masters")
	if err != nil {
		return err
	}
	if err := creator.Create(ctx, ns); err != nil {
		return err
	}
	r.recorder.noteWrite(escalation.Admin, ns)
	r.namespaces = append(r.namespaces, ns)
	return nil
}

// labelNamespace sets or removes the label by which a round's templates select namespaces.
func (r *roundRunner) labelNamespace(ctx context.Context, step *unstructured.Unstructured) error {
	value := "null"
	if selected, ok := step.GetLabels()[escalation.SelectLabel]; ok {
		value = strconv.Quote(selected)
	}
	body := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %s}}}`, escalation.SelectLabel, value)
	for _, ns := range r.namespaces {
		if ns.GetName() != step.GetName() {
			continue
		}
		before := &corev1.Namespace{}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(ns), before); err != nil {
			return err
		}
		if err := r.client.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", body)); err != nil {
			return err
		}
		if before.Labels[escalation.SelectLabel] != ns.GetLabels()[escalation.SelectLabel] {
			r.recorder.noteWrite(escalation.Admin, ns)
		}
	}
	return nil
}

// settle waits until the operator has nothing left to do in the selected namespaces.
func (r *roundRunner) settle(ctx context.Context) error {
	var selected []string
	for _, ns := range r.namespaces {
		if ns.GetLabels()[escalation.SelectLabel] == r.round.Name {
			selected = append(selected, ns.GetName())
		}
	}
	if err := r.settler.settle(ctx, selected...); err != nil {
		return err
	}
	revision, err := r.recorder.waitRecorded(ctx)
	r.settled = append(r.settled, revision)
	return err
}

// cleanUp deletes the templates and namespaces of the round.
func (r *roundRunner) cleanUp(ctx context.Context) error {
	for _, short := range []string{"a", "b", "c", "d", "e", "settled"} {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: r.round.Name + "-" + short}}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, template)); err != nil {
			return err
		}
	}
	for _, ns := range r.namespaces {
		if err := r.client.Delete(ctx, ns); err != nil {
			return err
		}
	}
	return nil
}
