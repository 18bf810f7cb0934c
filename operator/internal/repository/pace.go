package repository

import "time"

// pace says when a follower asks the server again: at the end of each interval, and at once for each new request of
// kubectl nstpl sync now or of a push hint.
type pace struct {
	// asked is when the last answer came, and requested the request that it served.
	asked     time.Time
	requested string
	// failures counts the last questions that had no answer, for a reason that may pass by itself.
	failures int
	// rechecks are the pauses before the next questions, if these come earlier than the interval ends.
	rechecks []time.Duration
}

// recheckAfter has the pauses before the server is asked again if there was no new commit when a request was served.
// A Git server may send the hint before a push has ended, or before all of its replicas have the commit.
func recheckAfter() []time.Duration { return []time.Duration{2 * time.Second, 10 * time.Second} }

// firstRetry is when a question without an answer is repeated. The time doubles with each further one, at most so many
// times, and no question is later than at the end of the interval.
const firstRetry, maxDoublings = 5 * time.Second, 6

// wait returns after which time the server is to be asked. It is zero or less if that is due.
func (p *pace) wait(interval time.Duration, requested string, now time.Time) time.Duration {
	if requested != p.requested {
		return 0
	}
	if len(p.rechecks) > 0 {
		interval = min(interval, p.rechecks[0])
	}
	if p.failures > 0 {
		interval = min(interval, firstRetry<<min(p.failures-1, maxDoublings))
	}
	return interval - now.Sub(p.asked)
}

// answered notes the end of a question when the last request was that one. failed says that there was no answer, for a
// reason that may pass by itself.
func (p *pace) answered(requested string, hasNewCommit, failed bool, now time.Time) {
	p.failures++
	if !failed {
		p.failures = 0
	}
	switch {
	case hasNewCommit:
		p.rechecks = nil
	case requested != p.requested:
		p.rechecks = recheckAfter()
	case len(p.rechecks) > 0:
		p.rechecks = p.rechecks[1:]
	}
	p.asked, p.requested = now, requested
}
