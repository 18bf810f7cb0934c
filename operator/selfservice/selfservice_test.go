package selfservice_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/selfservice"
)

func TestViolations(t *testing.T) {
	t.Parallel()
	rules := &v1alpha1.SelfService{
		NamePattern: "sandbox-*", Labels: map[string]v1alpha1.LabelPattern{"cost-center": "*", "tier": "dev"},
	}
	valid := map[string]string{"cost-center": "7", "tier": "dev"}
	for name, test := range map[string]struct {
		rules  *v1alpha1.SelfService
		name   string
		labels map[string]string
		want   []string
	}{
		"no rules":        {name: "anything"},
		"allowed":         {rules: rules, name: "sandbox-jane", labels: valid},
		"star is empty":   {rules: rules, name: "sandbox-", labels: valid},
		"other name":      {rules: rules, name: "my-sandbox-jane", labels: valid, want: []string{"its name must match sandbox-*"}},
		"only the prefix": {rules: rules, name: "sandbox", labels: valid, want: []string{"its name must match sandbox-*"}},
		"missing label": {
			rules: rules, name: "sandbox-a", labels: map[string]string{"tier": "dev"},
			want: []string{"it must have the label cost-center with a value that matches *"},
		},
		"empty label": {
			rules: rules, name: "sandbox-a", labels: map[string]string{"cost-center": "", "tier": "dev"},
			want: []string{"it must have the label cost-center with a value that matches *"},
		},
		"other label": {
			rules: rules, name: "sandbox-a", labels: map[string]string{"cost-center": "1", "tier": "prod"},
			want: []string{"it must have the label tier=dev"},
		},
		"everything wrong": {
			rules: rules, name: "a", want: []string{
				"its name must match sandbox-*", "it must have the label cost-center with a value that matches *",
				"it must have the label tier=dev",
			},
		},
		"two stars": {rules: &v1alpha1.SelfService{NamePattern: "a*b*"}, name: "axxbyy"},
		"no star": {
			rules: &v1alpha1.SelfService{NamePattern: "only"}, name: "only-this",
			want: []string{"its name must match only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, selfservice.Violations(test.rules, test.name, test.labels))
		})
	}
}

func TestMaxAgeIsTheShortest(t *testing.T) {
	t.Parallel()
	space := func(maxAge time.Duration) *v1alpha1.PolicySpace {
		space := &v1alpha1.PolicySpace{}
		if maxAge != 0 {
			space.Spec.SelfService = &v1alpha1.SelfService{MaxAge: &metav1.Duration{Duration: maxAge}}
		}
		return space
	}
	require.Zero(t, selfservice.MaxAge(nil))
	require.Zero(t, selfservice.MaxAge([]*v1alpha1.PolicySpace{space(0)}))
	require.Equal(t, time.Hour, selfservice.MaxAge([]*v1alpha1.PolicySpace{space(2 * time.Hour), space(0), space(time.Hour)}))
	require.Equal(t, time.Hour, selfservice.MaxAge([]*v1alpha1.PolicySpace{space(time.Hour), space(-1), space(2 * time.Hour)}))
}

func TestOutlives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := &v1alpha1.SelfService{MaxAge: &metav1.Duration{Duration: 24 * time.Hour}}
	for name, test := range map[string]struct {
		rules      *v1alpha1.SelfService
		annotation string
		want       bool
	}{
		"no rules":              {nil, "never", false},
		"no maximum":            {&v1alpha1.SelfService{}, "never", false},
		"no end yet":            {day, "", false},
		"an earlier end":        {day, "2026-01-01T12:00:00Z", false},
		"the same end":          {day, "2026-01-02T00:00:00Z", false},
		"that of another clock": {day, "2026-01-02T00:00:30Z", false},
		"a later end":           {day, "2026-01-02T00:02:00Z", true},
		"never":                 {day, "never", true},
		"not a time":            {day, "tomorrow", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, selfservice.Outlives(test.rules, test.annotation, now))
		})
	}
}

func TestLifeOf(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	at := func(days float64) time.Time { return created.Add(time.Duration(days * float64(day))) }
	end := func(days float64) string { return at(days).Format(time.RFC3339) }
	for name, test := range map[string]struct {
		annotation string
		now        time.Time
		want       selfservice.Life
	}{
		"no annotation":     {"", at(1), selfservice.Life{State: selfservice.Lives}},
		"never":             {"never", at(1000), selfservice.Life{State: selfservice.Lives}},
		"no time":           {"tomorrow", at(1), selfservice.Life{State: selfservice.Invalid}},
		"at the start":      {end(10), at(0), selfservice.Life{State: selfservice.Lives, End: at(10), Changes: at(9)}},
		"the last tenth":    {end(10), at(9), selfservice.Life{State: selfservice.ExpiresSoon, End: at(10), Changes: at(10)}},
		"a year":            {end(365), at(357), selfservice.Life{State: selfservice.Lives, End: at(365), Changes: at(358)}},
		"a year's week":     {end(365), at(358), selfservice.Life{State: selfservice.ExpiresSoon, End: at(365), Changes: at(365)}},
		"the end":           {end(10), at(10), selfservice.Life{State: selfservice.Expired, End: at(10)}},
		"long after":        {end(10), at(99), selfservice.Life{State: selfservice.Expired, End: at(10)}},
		"before its birth":  {end(-1), at(0), selfservice.Life{State: selfservice.Expired, End: at(-1)}},
		"with another zone": {"2026-01-11T02:00:00+02:00", at(10), selfservice.Life{State: selfservice.Expired, End: at(10)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life := selfservice.LifeOf(test.annotation, created, test.now)
			require.Equal(t, test.want.State, life.State)
			require.True(t, test.want.End.Equal(life.End), life.End)
			require.True(t, test.want.Changes.Equal(life.Changes), life.Changes)
			require.Equal(t, test.want.State == selfservice.Lives, life.Message(test.annotation, false) == "")
		})
	}
	require.Equal(t, "2026-01-11T00:00:00Z", selfservice.EndOf(10*day, created.Add(999*time.Millisecond)))
}
