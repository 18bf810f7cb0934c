package selection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// keyPending is the key of the ConfigMap with the pending additions.
const keyPending = "pending"

// expiry is how long an addition stays pending if its request fails after admission. No request of the API server takes
// as long.
const expiry = 2 * time.Minute

// record is the content of the ConfigMap.
type record struct {
	rules   selectors.Set
	pending []addition
	optOuts selectors.OptOuts
}

// addition are rules that admission added for a request.
type addition struct {
	// Kind is the kind of the template or configuration, and Name its name.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// UID is that of the object that the request creates, or updates.
	UID string `json:"uid"`
	// After is the resourceVersion of the object that the request updates, or empty if it creates the object.
	After string           `json:"after,omitempty"`
	Rules []selectors.Rule `json:"rules"`
	Time  metav1.Time      `json:"time"`
	// limited is true if the rules take more than before, and the user does not have the verb use on all templates.
	limited bool
}

// read returns the content of the ConfigMap. Pending additions that cannot be read, since they were edited, are
// dropped.
func read(configMap *corev1.ConfigMap) record {
	r := record{rules: selectors.Parse(configMap.Data), optOuts: selectors.OptOutsOf(configMap.Data)}
	if err := json.Unmarshal([]byte(configMap.Data[keyPending]), &r.pending); err != nil {
		r.pending = nil
	}
	return r
}

// with returns the record with those additions for which the ConfigMap has room, and an error for each, or nil.
func (r record) with(additions []addition) (record, []error) {
	errs := make([]error, len(additions))
	all := r
	all.pending = slices.Concat(r.pending, additions)
	isLimited := func(a addition) bool { return a.limited }
	if _, err := all.data(); err == nil && !slices.ContainsFunc(additions, isLimited) {
		return all, errs
	}
	for i, added := range additions {
		more := r
		more.pending = slices.Concat(r.pending, []addition{added})
		_, err := more.data()
		if err == nil && added.limited {
			err = more.inForce().CheckShare(added.Rules)
		}
		if err != nil {
			errs[i] = webhook.Deny(codes.SelectorsFull, err.Error())
			continue
		}
		r = more
	}
	return r, errs
}

// write sets the content of a ConfigMap. It reports whether the content has changed.
func (r record) write(configMap *corev1.ConfigMap) (changed bool, err error) {
	data, err := r.data()
	if err != nil || maps.Equal(data, configMap.Data) {
		return false, err
	}
	configMap.Data = data
	return true, nil
}

// inForce returns all rules: those of pending additions are in force.
func (r record) inForce() selectors.Set {
	rules := maps.Clone(r.rules)
	if rules == nil {
		rules = selectors.Set{}
	}
	for _, pending := range r.pending {
		rules.Add(pending.Rules...)
	}
	return rules
}

func (r record) data() (map[string]string, error) {
	data, err := r.inForce().Data()
	if err != nil {
		return nil, err
	}
	if len(r.pending) > 0 {
		text, err := json.Marshal(r.pending)
		if err != nil {
			return nil, fmt.Errorf("write the pending additions: %w", err)
		}
		data[keyPending] = string(text)
	}
	maps.Copy(data, r.optOuts)
	return data, nil
}

// stored reports whether an object was stored since the addition, by the addition's request or by a later one. If a
// later request was, the API server has admission decide again about the earlier one.
func (a addition) stored(object metav1.Object) bool {
	return object != nil && string(object.GetUID()) == a.UID && freshness.Newer(object.GetResourceVersion(), a.After)
}

// expired reports whether the request of the addition has ended.
func (a addition) expired(now time.Time) bool { return now.Sub(a.Time.Time) > expiry }
