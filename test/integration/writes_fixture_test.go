package integration_test

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
)

type request = audit.Request

const operatorUser = v1alpha1.OperatorUser

// administrator is the name of the user of a cluster's client.
const administrator = "admin"

// undeclaredName is a part of the names of objects that others create and that an authoritative template deletes.
const undeclaredName = "undeclared"

// reboundName is a part of the names of RoleBindings that others create, and that the operator adopts and then replaces
// because their roleRef changed.
const reboundName = "rebound"

// replacedName is a part of the names of Roles and RoleBindings that others create in place of a template's own. They
// belong to the template, so they are deleted with it.
const replacedName = "replaced"

// mayBeDeleted reports whether the operator may delete an object that it did not create.
func mayBeDeleted(r request) bool {
	name := r.ObjectRef.Name
	return strings.Contains(name, undeclaredName) || strings.Contains(name, reboundName) ||
		strings.Contains(name, replacedName) || name == v1alpha1.QuotaName ||
		r.ObjectRef.Resource == "namespaces" && strings.HasPrefix(name, "namespacesexpire-")
}

// writeFixture reads the operator's writes from the audit log.
type writeFixture struct{ *scope }

// countWrites returns the number of write requests of the operator in a namespace, by verb and resource.
func (s writeFixture) countWrites(ns *corev1.Namespace) map[string]int {
	s.t.Helper()
	return audit.Count(s.writesSince(0, func(r request) bool { return r.ObjectRef.Namespace == ns.Name }))
}

// outcomes returns the operator's write requests in a namespace with their outcomes, for messages of tests that count
// them.
func (s writeFixture) outcomes(ns *corev1.Namespace) string {
	s.t.Helper()
	requests, err := s.audit.Read()
	require.NoError(s.t, err)
	var all strings.Builder
	for _, r := range requests {
		if r.Stage == "ResponseComplete" && r.User.Username == v1alpha1.OperatorUser && r.ObjectRef.Namespace == ns.Name {
			fmt.Fprintf(&all, "%s %s %s/%s: %d %s\n", r.Verb, r.ObjectRef.Resource, r.ObjectRef.Name, r.ObjectRef.Subresource,
				r.ResponseStatus.Code, r.ResponseStatus.Message)
		}
	}
	return all.String()
}

// writesSince returns the write requests of the operator after a position of the audit log that a function accepts.
func (s writeFixture) writesSince(position int, counted func(request) bool) []request {
	s.t.Helper()
	writes, err := s.audit.WritesSince(position, counted)
	require.NoError(s.t, err)
	return writes
}

// waitReceived waits until the API server has received a number of the test's writes in a namespace, after a position of
// the audit log. It does not wait for their ends. The writes are an administrator's, who may impersonate another user.
func (s writeFixture) waitReceived(position int, namespace string, number int) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		requests, err := s.audit.Read()
		assert.NoError(c, err)
		received := 0
		for _, r := range requests[position:] {
			if r.Stage == "RequestReceived" && r.User.Username == administrator && r.ObjectRef.Namespace == namespace {
				received++
			}
		}
		assert.GreaterOrEqual(c, received, number)
	})
}

// auditPosition returns the current end of the audit log.
func (s writeFixture) auditPosition() int {
	s.t.Helper()
	position, err := s.audit.Now()
	require.NoError(s.t, err)
	return position
}

// expectRestartWritesNothing restarts the operator, and fails if it writes anything until a controller has reconciled.
func (s writeFixture) expectRestartWritesNothing(controller string) {
	s.t.Helper()
	waitAdditionsStored(s)
	position := s.auditPosition()
	s.restartOperator(s.t)
	s.waitReconciled(controller)
	require.Empty(s.t, s.writesSince(position, func(request) bool { return true }))
}

// waitReconciled waits until a controller of an operator that has just started has reconciled something.
func (s writeFixture) waitReconciled(controller string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		reconciled, _, err := s.operator.Metric(s.t.Context(), "controller_runtime_reconcile_total",
			fmt.Sprintf("controller=%q", controller), `result="success"`)
		assert.NoError(c, err)
		assert.Positive(c, reconciled)
	})
}

// waitAdditionsStored waits until the operator has seen the objects whose selectors admission has recorded. An operator
// that starts before that writes the record.
func waitAdditionsStored(s writeFixture) {
	s.t.Helper()
	record := &corev1.ConfigMap{}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{
			Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap,
		}, record))
		assert.NotContains(c, record.Data, "pending")
	})
}
