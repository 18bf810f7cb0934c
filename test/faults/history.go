package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is what a client does that a quota counts.
type operation int

const (
	create operation = iota
	destroy
)

// outcome is what a client knows of its operation.
type outcome int

const (
	accepted outcome = iota
	refused
	// unknown operations may have been carried out, at any time since.
	unknown
)

// history is what clients of a quota did, and when. It may be used by several clients at once.
type history struct {
	mu     sync.Mutex
	begin  time.Time
	events []done
}

// done is an operation that is over.
type done struct {
	client       int
	operation    operation
	object       string
	outcome      outcome
	called, over time.Duration
}

func newHistory() *history {
	return &history{begin: time.Now()}
}

// record carries out an operation and appends its outcome to the history.
func (h *history) record(client int, what operation, object string, do func() outcome) {
	called := time.Since(h.begin)
	result := do()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, done{client, what, object, result, called, time.Since(h.begin)})
}

// check returns that no order of the operations keeps within a limit. Of those whose outcome is unknown, what is there
// in the end tells which were carried out; when they were is open.
func (h *history) check(limit int, there map[string]string) []string {
	var operations []porcupine.Operation
	end := time.Since(h.begin)
	for _, event := range h.events {
		over := event.over
		if event.outcome == unknown {
			over = end
			if _, exists := there[event.object]; exists != (event.operation == create) {
				continue
			}
		}
		if event.outcome != refused {
			operations = append(operations, porcupine.Operation{
				ClientId: event.client, Input: event.operation, Call: int64(event.called), Output: accepted,
				Return: int64(over),
			})
		}
	}
	if !porcupine.CheckOperations(capacity(limit), operations) {
		return []string{
			fmt.Sprintf("the quota of %d was exceeded: no order of these %d operations keeps within it: %+v", limit,
				len(operations), h.events),
		}
	}
	return nil
}

// capacity is a counter that never goes over a limit.
func capacity(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			used := state.(int)
			if input.(operation) == create {
				return used < limit, used + 1
			}
			return used > 0, used - 1
		},
	}
}
