package selfservice

import (
	"fmt"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// State says whether a namespace has expired.
type State string

// The states of a namespace. They are also reasons of the condition v1alpha1.NamespaceExpired.
const (
	// Lives is the state of a namespace that does not expire soon, or never.
	Lives State = "Lives"
	// ExpiresSoon is the state in the last tenth of a namespace's life, and not earlier than seven days before its end.
	ExpiresSoon State = "ExpiresSoon"
	// Expired is the state after the end.
	Expired State = "Expired"
	// Invalid is the state of a namespace whose annotation is not a time. It does not expire.
	Invalid State = "InvalidTime"
)

// maxNotice is how long before its end a namespace expires soon, at the most.
const maxNotice = 7 * 24 * time.Hour

// Life is what the annotation v1alpha1.ExpiresAnnotation of a namespace says at a time.
type Life struct {
	State State
	// End is when the namespace expires. It is zero for a namespace that does not.
	End time.Time
	// Changes is when the state changes next, or zero.
	Changes time.Time
}

// LifeOf returns the state at a time of a namespace that was created at another, by the value of its annotation.
func LifeOf(annotation string, created, now time.Time) Life {
	if annotation == "" || annotation == v1alpha1.ExpiresNever {
		return Life{State: Lives}
	}
	end, err := time.Parse(time.RFC3339, annotation)
	if err != nil {
		return Life{State: Invalid}
	}
	soon := end.Add(-min(maxNotice, end.Sub(created)/10))
	switch {
	case !now.Before(end):
		return Life{State: Expired, End: end}
	case !now.Before(soon):
		return Life{State: ExpiresSoon, End: end, Changes: end}
	}
	return Life{State: Lives, End: end, Changes: soon}
}

// EndOf returns the value of v1alpha1.ExpiresAnnotation for a namespace that may live so long from now on.
func EndOf(maxAge time.Duration, now time.Time) string {
	return now.Add(maxAge).UTC().Truncate(time.Second).Format(time.RFC3339)
}

// clockTolerance is how much the clocks of the operator's replicas may differ.
const clockTolerance = time.Minute

// Outlives reports whether a namespace expires later than the rules of a policy space let one expire that is put there
// now, by the value of its annotation. A namespace without the annotation does not: it is given an end there.
func Outlives(rules *v1alpha1.SelfService, annotation string, now time.Time) bool {
	maxAge := MaxAge([]*v1alpha1.PolicySpace{{Spec: v1alpha1.PolicySpaceSpec{SelfService: rules}}})
	if maxAge == 0 || annotation == "" {
		return false
	}
	end, err := time.Parse(time.RFC3339, annotation)
	return err != nil || end.After(now.Add(maxAge+clockTolerance))
}

// Message describes the state for the users of a namespace. It is empty if there is nothing to say.
func (l Life) Message(annotation string, isDeleted bool) string {
	then := "it stays until an administrator deletes it"
	if isDeleted {
		then = "it is deleted then"
	}
	switch l.State {
	case ExpiresSoon:
		return fmt.Sprintf("expires at %s, and %s: ask an administrator of policy spaces for more time",
			l.End.Format(time.RFC3339), then)
	case Expired:
		return fmt.Sprintf("expired at %s", l.End.Format(time.RFC3339))
	case Invalid:
		return fmt.Sprintf("the annotation %s has the value %q, which is not a time such as 2026-01-31T12:00:00Z, and not %s",
			v1alpha1.ExpiresAnnotation, annotation, v1alpha1.ExpiresNever)
	case Lives:
	}
	return ""
}
