package main

import (
	"fmt"
	"net/http"
	"time"
)

// killed returns the faults that kill the operator before and after each of its first writes.
func killed(writes int) []fault {
	var all []fault
	for at := 1; at <= writes; at++ {
		all = append(all,
			fault{name: fmt.Sprintf("killed before write %d", at), do: kill, at: at},
			fault{name: fmt.Sprintf("killed after write %d", at), do: kill, at: at, after: true})
	}
	return all
}

// faults returns all other faults that every scenario is tried with.
func faults() []fault {
	const lasts = 3 * time.Second
	all := []fault{
		{name: "answers to deletions late", lateDeletions: 500 * time.Millisecond, lasts: time.Second},
		{name: "watches late", lateWatches: 2 * time.Second, lasts: lasts},
		{name: "watches cut", cutWatches: 200 * time.Millisecond, lasts: lasts},
		{name: "watches cut and gone", cutWatches: 200 * time.Millisecond, goneWatches: 0.5, lasts: lasts},
		{name: "network cut", cut: true, lasts: lasts},
		{name: "down", during: down, lasts: time.Second},
		{name: "restarted", during: restarted},
		{name: "writes late and the sender killed", late: 5 * time.Second, methods: "PATCH", do: kill, at: 5},
		{name: "API server crashes", do: crashAPIServer, at: 2},
		{name: "etcd crashes", do: crashEtcd, at: 2},
		{
			name: "RoleBindings not applied", answer: http.StatusServiceUnavailable, chance: 1,
			writesOf: "rolebindings", methods: "PATCH", lasts: 4 * time.Second,
		},
	}
	for code, name := range map[int]string{429: "429", 500: "500", 503: "503", reset: "reset"} {
		all = append(all,
			fault{name: name + " instead of writes", answer: code, chance: 0.4, lasts: lasts},
			fault{name: name + " after writes", answer: code, chance: 0.4, after: true, lasts: lasts},
			fault{name: name + " after every write", answer: code, chance: 1, after: true, lasts: lasts})
	}
	return all
}

// faultsOfTwo returns the faults that need another replica.
func faultsOfTwo() []fault {
	return []fault{
		{
			name: "the leader ends while the standby is late", standby: true, lateWatches: 10 * time.Second,
			during: handover,
		},
		{name: "the leader is suspended", do: suspend, at: 3, lasts: 2 * time.Second},
	}
}
