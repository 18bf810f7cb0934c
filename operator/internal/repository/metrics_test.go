package repository

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestStatusesAreMetrics(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }
	last := at(100)
	ready := func(status metav1.ConditionStatus, reason string, since int64) []metav1.Condition {
		return []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: status, Reason: reason, LastTransitionTime: at(since),
		}}
	}
	for name, test := range map[string]struct {
		spec   v1alpha1.PolicyRepositorySpec
		status v1alpha1.PolicyRepositoryStatus
		want   []string
	}{
		"new": {want: []string{
			"nstpl_sync_interval_seconds 60 [a]", "nstpl_sync_pending_deletions 0 [a]",
			"nstpl_sync_contested_objects 0 [a]", "nstpl_sync_violations 0 [a]",
		}},
		"in force": {
			spec: v1alpha1.PolicyRepositorySpec{Interval: &metav1.Duration{Duration: time.Hour}},
			status: v1alpha1.PolicyRepositoryStatus{
				LastSyncTime: &last, Commits: v1alpha1.RepositoryCommits{Applied: "1a2b"},
				Conditions: ready(metav1.ConditionTrue, v1alpha1.RepositorySynced, 50),
			},
			want: []string{
				"nstpl_sync_interval_seconds 3600 [a]", "nstpl_sync_ready 1 [a Synced]",
				"nstpl_sync_last_success_timestamp_seconds 100 [a]", "nstpl_sync_pending_deletions 0 [a]",
				"nstpl_sync_contested_objects 0 [a]", "nstpl_sync_violations 0 [a]", "nstpl_sync_commit_info 1 [a 1a2b]",
			},
		},
		"a newer commit has violations": {
			status: v1alpha1.PolicyRepositoryStatus{
				LastSyncTime: &last, Commits: v1alpha1.RepositoryCommits{Fetched: "3c4d", Applied: "1a2b"},
				ViolationCount: 7, Conditions: ready(metav1.ConditionFalse, v1alpha1.RepositoryViolations, 50),
			},
			want: []string{
				"nstpl_sync_interval_seconds 60 [a]", "nstpl_sync_ready 0 [a Violations]",
				"nstpl_sync_last_success_timestamp_seconds 50 [a]", "nstpl_sync_pending_deletions 0 [a]",
				"nstpl_sync_contested_objects 0 [a]", "nstpl_sync_violations 7 [a]", "nstpl_sync_commit_info 1 [a 1a2b]",
			},
		},
		"suspended, with pending deletions": {
			spec: v1alpha1.PolicyRepositorySpec{Suspend: true},
			status: v1alpha1.PolicyRepositoryStatus{
				LastSyncTime: &last, PendingDeletions: &v1alpha1.PendingDeletions{Total: 30},
				Contested:  []v1alpha1.RepositoryFailure{{Object: "clusterrole/a"}},
				Conditions: ready(metav1.ConditionFalse, v1alpha1.RepositorySuspended, 150),
			},
			want: []string{
				"nstpl_sync_ready 0 [a Suspended]", "nstpl_sync_last_success_timestamp_seconds 100 [a]",
				"nstpl_sync_pending_deletions 30 [a]", "nstpl_sync_contested_objects 1 [a]", "nstpl_sync_violations 0 [a]",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := &v1alpha1.PolicyRepository{Spec: test.spec, Status: test.status}
			repository.Name = "a"
			var got []string
			collect(repository, func(description *prometheus.Desc, value float64, labels ...string) {
				prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
				_, text, _ := strings.Cut(description.String(), `fqName: "`)
				text, _, _ = strings.Cut(text, `"`)
				got = append(got, fmt.Sprint(text, " ", value, " ", labels))
			})
			require.Equal(t, test.want, got)
		})
	}
}
