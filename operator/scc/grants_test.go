package scc_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/scc"
)

// With union, the creator's or the service account's permission suffices. With intersection, both are needed. The
// reason names the subject that lacks the permission.
func TestMatchOfConstraintGrants(t *testing.T) {
	t.Parallel()
	const both = ": with --scc-match=intersection, both the user and the serviceaccount must be able to use it"
	for name, test := range map[string]struct {
		users, groups                   []string
		withoutAccount                  bool
		union, intersection             string
		unionDenial, intersectionDenial string
	}{
		"everybody": {groups: []string{"system:authenticated"}, union: "user", intersection: "user"},
		"all service accounts": {
			groups: []string{"system:serviceaccounts"}, union: "serviceaccount",
			intersectionDenial: "not usable by user" + both,
		},
		"the service accounts of the namespace, and the user": {
			groups: []string{"system:serviceaccounts:team-a"}, users: []string{"jane"}, union: "serviceaccount",
			intersection: "user",
		},
		"the service accounts of another namespace, and the user": {
			groups: []string{"system:serviceaccounts:team-b"}, users: []string{"jane"}, union: "user",
			intersectionDenial: "not usable by serviceaccount" + both,
		},
		"the service account, and a group of the user": {
			users: []string{"system:serviceaccount:team-a:robot"}, groups: []string{"devs"}, union: "serviceaccount",
			intersection: "user",
		},
		"nobody": {
			unionDenial: "not usable by user or serviceaccount", intersectionDenial: "not usable by user or serviceaccount",
		},
		"a pod without a service account": {
			users: []string{"jane"}, withoutAccount: true, union: "user", intersection: "user",
		},
		"no subject, for a pod without a service account": {
			withoutAccount: true, unionDenial: "not usable by user", intersectionDenial: "not usable by user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granted := scc.Defaulted(constraint(t, "c", `{runAsUser: {type: RunAsAny}, seLinuxContext: {type: RunAsAny}}`))
			granted.Users, granted.Groups = test.users, test.groups
			jane := attributes.Requester{Name: "jane", Groups: []string{"devs", "system:authenticated"}}
			reviewOf := func(intersection bool) (subject, denial string) {
				pod := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "robot"}}
				if test.withoutAccount {
					pod.Spec.ServiceAccountName = ""
				}
				verdict := scc.Review(scc.Request{
					Pod: pod, NamespaceAnnotations: allocated, Intersection: intersection,
					Constraints: []*v1alpha1.SecurityContextConstraints{granted},
					Usable: func(c *v1alpha1.SecurityContextConstraints, subject string) bool {
						if subject == scc.UserSubject {
							return scc.Lists(c, jane)
						}
						return scc.Lists(c, scc.AccountRequester("team-a", "robot", intersection))
					},
				})
				if len(verdict.Reasons) > 0 {
					denial = verdict.Reasons[0].Message
				}
				return verdict.Subject, denial
			}
			subject, denial := reviewOf(false)
			require.Equal(t, []string{test.union, test.unionDenial}, []string{subject, denial}, "union")
			subject, denial = reviewOf(true)
			require.Equal(t, []string{test.intersection, test.intersectionDenial}, []string{subject, denial}, "intersection")
		})
	}
}
