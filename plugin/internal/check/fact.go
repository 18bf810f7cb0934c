package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// fact is what was read from the cluster, or why it could not be read.
type fact[T any] struct {
	value T
	err   error
}

// factOf returns a fact from the results of a function that reads it.
func factOf[T any](value T, err error) fact[T] { return fact[T]{value, err} }

// factsOf returns the facts about some keys. It reads several at a time.
func factsOf[K comparable, T any](keys []K, read func(K) (T, error)) map[K]fact[T] {
	facts := map[K]fact[T]{}
	for i, found := range cluster.Each(keys, func(key K) fact[T] { return factOf(read(key)) }) {
		facts[keys[i]] = found
	}
	return facts
}

const permissionRemedy = "ask a cluster administrator for this permission, or to run the command"

// unread returns the result of a check that lacks a fact. Request is what was asked for, such as "list namespaces".
func unread(check, request string, err error) Result {
	if apierrors.IsForbidden(err) {
		return Result{
			Check: check, Status: Unknown, Message: title(check) + " unknown: you may not " + request,
			Remedy: permissionRemedy,
		}
	}
	return Result{
		Check: check, Status: Unknown,
		Message: fmt.Sprintf("%s unknown: the request to %s failed: %v", title(check), request, err),
		Remedy:  "run the command again; if that does not help, check the API server and the connection to it",
	}
}

// title returns the id of a check as words.
func title(check string) string { return strings.ReplaceAll(check, "-", " ") }

// unreadObjects returns the judgement of a check with one result for objects that could not be read, or none if there
// are none.
func unreadObjects(check string, errs map[ref]error) judgement {
	j := judgement{check: check}
	var forbidden []string
	for _, object := range slices.SortedFunc(maps.Keys(errs), compareRefs) {
		if apierrors.IsForbidden(errs[object]) {
			forbidden = append(forbidden, resourceOf(object.kind).Resource)
		} else if len(j.results) == 0 { // the others probably have the same cause
			j.results = append(j.results, unread(check, "get "+object.String(), errs[object]))
		}
	}
	if len(forbidden) > 0 {
		j.report(Unknown, title(check)+" unknown in part: you may not get "+output.FirstFew(forbidden),
			permissionRemedy)
	}
	return j
}

func compareRefs(a, b ref) int {
	return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.namespace, b.namespace))
}
