package rollout

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Without maxUnavailable and waves, a rollout begins with one namespace in canaryOf, but at most maxCanaries. Each
// batch makes the number of namespaces that have the revision growth times as large.
const (
	canaryOf    = 50
	maxCanaries = 10
	growth      = 4
)

// Member is a namespace of a rollout: the newest revision selects it, or an older one does.
type Member struct {
	Wave     int
	Position int64
	// Reached is true if the newest revision has reached the namespace, and Pending if the namespace was not populated
	// with it yet.
	Reached, Pending bool
	// Failed is true if the namespace could not be populated, with whichever revision, for a reason that does not pass
	// by itself. If it failed before the newest revision reached it, that does not stop the rollout.
	Failed bool
	// IsUnknown is true if it is unknown whether the namespace can be populated: there was no pass since it was outside
	// of the template or was queued, or the last one failed only for reasons that may pass.
	IsUnknown bool
	// FailedBefore is true if FailedBefore has the namespace, and IsGuess if it has it as a guess.
	FailedBefore, IsGuess bool
	// IsNew is true if the namespace was created during the rollout. Its creator chose its name and labels, by which it
	// may fail. That counts only if no other namespace shows whether the newest revision can be populated.
	IsNew bool
}

// FailedBefore has the namespaces that failed before the newest revision reached them, by UID, until a pass shows that
// they can be populated. What is outside of the template meanwhile stays in it. A namespace that the revision mends
// does not let it break another.
type FailedBefore map[types.UID]Failing

// Failing is a namespace of FailedBefore. A process that starts knows only how many members failed before, so each that
// fails then is a guess.
type Failing struct {
	Name    string
	IsGuess bool
}

// Next sets the FailedBefore of a member, and has next agree with it. f is nil after a start.
func (f FailedBefore) Next(next FailedBefore, ns *corev1.Namespace, member *Member) {
	failing, failedBefore := f[ns.UID]
	switch {
	case member.IsUnknown:
	case member.Failed && (f == nil || !member.Reached):
		failing, failedBefore = Failing{Name: ns.Name, IsGuess: member.Reached}, true
	case !member.Reached || !member.Failed && !member.Pending:
		failedBefore = false
	}
	member.FailedBefore, member.IsGuess = failedBefore, failedBefore && failing.IsGuess
	if failedBefore {
		next[ns.UID] = failing
	} else {
		delete(next, ns.UID)
	}
}

// Confirm makes the guesses known failures, if there are at most as many as were counted before the start.
func (f FailedBefore) Confirm(counted int32) {
	guesses := int32(0)
	for _, failing := range f {
		if failing.IsGuess {
			guesses++
		}
	}
	if guesses > counted {
		return
	}
	for uid, failing := range f {
		f[uid] = Failing{Name: failing.Name}
	}
}

// Advance returns the newest revision of a template after the next step of its rollout, and after which time it has to
// be called again if nothing else changes, or 0. settings may be nil.
func Advance(
	revision v1alpha1.TemplateRevision, settings *v1alpha1.Rollout, members []Member, now time.Time,
) (v1alpha1.TemplateRevision, time.Duration) {
	if revision.State == v1alpha1.RolloutComplete {
		return revision, 0
	}
	if settings == nil {
		settings = &v1alpha1.Rollout{}
	}
	failed, failedBefore, guessed := countFailed(members, settings.Paused)
	// A member that was outside of the template when its batch was taken was not counted then.
	revision.FailedBefore = max(revision.FailedBefore, failedBefore)
	switch allowed := int32(share(settings.MaxFailures, 0, len(members), false)); {
	case failed > min(failedBefore+guessed, revision.FailedBefore)+allowed:
		revision.State = v1alpha1.RolloutStopped
		if revision.StopTime == nil {
			// The next whole second, so that no namespace that has the revision already loses it.
			revision.StopTime = new(metav1.NewTime(now.Truncate(time.Second).Add(time.Second)))
		}
		return revision, 0
	case settings.Paused:
		revision.State, revision.StopTime = v1alpha1.RolloutPaused, nil
		return revision, 0
	}
	revision.State, revision.StopTime = v1alpha1.RolloutProgressing, nil
	for {
		next, wait, isMoved := step(revision, settings, members, now)
		if !isMoved {
			return next, wait
		}
		revision = next
	}
}

// countFailed returns how many members failed that the newest revision has reached, for how many of them it is known
// that they failed before, and for how many that is a guess.
func countFailed(members []Member, isPaused bool) (failed, failedBefore, guessed int32) {
	shows := func(m Member) bool { return !m.Reached && !isPaused || m.Reached && !m.Pending && !m.Failed }
	isShown := slices.ContainsFunc(members, shows)
	for _, member := range members {
		if !member.Reached || !member.Failed || member.IsNew && isShown {
			continue
		}
		failed++
		switch {
		case member.IsGuess:
			guessed++
		case member.FailedBefore:
			failedBefore++
		}
	}
	return failed, failedBefore, guessed
}

// step moves a rollout to the next batch of the wave under way, or to the next wave. isMoved is true if the next wave
// began, which may have no namespaces.
func step(
	revision v1alpha1.TemplateRevision, settings *v1alpha1.Rollout, members []Member, now time.Time,
) (next v1alpha1.TemplateRevision, wait time.Duration, isMoved bool) {
	total, reached := 0, 0
	var waiting []int64
	for _, member := range members {
		switch {
		case member.Reached && member.Pending:
			return revision, 0, false
		case member.Wave != int(revision.Wave):
		case member.Reached:
			total++
			reached++
		default:
			total++
			if member.Position >= revision.Reach {
				waiting = append(waiting, member.Position)
			}
		}
	}
	if len(waiting) > 0 {
		size := batch(settings, len(revision.Waves) > 0, total, reached)
		revision.Reach = reachOf(waiting, size)
		for _, member := range members {
			isInBatch := !member.Reached && member.Wave == int(revision.Wave) && member.Position < revision.Reach
			if member.FailedBefore && isInBatch {
				revision.FailedBefore++
			}
		}
		return revision, 0, false
	}
	if int(revision.Wave) >= len(revision.Waves) {
		return completed(revision), 0, false
	}
	if pause := time.Duration(revision.Waves[revision.Wave].PauseSeconds) * time.Second; pause > 0 && total > 0 {
		if revision.WaveTime == nil {
			revision.WaveTime = new(metav1.NewTime(now.Truncate(time.Second)))
		}
		if left := pause - now.Sub(revision.WaveTime.Time); left > 0 {
			revision.State = v1alpha1.RolloutWaiting
			return revision, left, false
		}
	}
	revision.Wave++
	revision.Reach, revision.WaveTime = 0, nil
	return revision, 0, true
}

// batch returns how many namespaces of a wave are updated next.
func batch(settings *v1alpha1.Rollout, hasWaves bool, total, reached int) int {
	switch {
	case settings.MaxUnavailable != nil:
		return max(1, share(settings.MaxUnavailable, 0, total, true))
	case hasWaves:
		return total
	case reached == 0:
		return min(max(1, total/canaryOf), maxCanaries)
	}
	return reached * (growth - 1)
}

// reachOf returns the reach that includes the first positions.
func reachOf(positions []int64, size int) int64 {
	if size >= len(positions) {
		return everyPosition
	}
	slices.Sort(positions)
	return positions[size-1] + 1
}

// share returns a number of namespaces, which may be given as a percentage of all of them.
func share(of *intstr.IntOrString, otherwise, total int, roundUp bool) int {
	if of == nil {
		return otherwise
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(of, total, roundUp)
	if err != nil {
		return otherwise // the schema does not allow it
	}
	return number
}
