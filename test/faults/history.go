package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is a request of a client that a quota counts.
type operation int

const (
	create operation = iota
	destroy
)

// outcome is what a client knows about the result of its operation.
type outcome int

const (
	accepted outcome = iota
	refused
	// The server may have executed an unknown operation at any time since its start.
	unknown
)

// history records the operations of a quota's clients with their times. It is safe for concurrent use.
type history struct {
	mu     sync.Mutex
	begin  time.Time
	events []done
}

// done is an operation that has ended.
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

// record executes an operation and appends its outcome to the history.
func (h *history) record(client int, what operation, object string, do func() outcome) {
	called := h.now()
	result := do()
	h.add(done{client, what, object, result, called, h.now()})
}

// now returns the time since the history began.
func (h *history) now() time.Duration { return time.Since(h.begin) }

// add appends an operation to the history.
func (h *history) add(event done) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
}

// check returns a violation if no order of the operations keeps within a limit. For an operation with an unknown
// outcome, what happened to its object shows whether it was executed, but not when.
func (h *history) check(limit int, there map[string]string) []string {
	var operations []porcupine.Operation
	end := h.now()
	destroyed := map[string]time.Duration{}
	for _, event := range h.events {
		if event.operation == destroy {
			destroyed[event.object] = event.called
		}
	}
	for _, event := range h.events {
		over := event.over
		if event.outcome == unknown {
			over = end
			_, exists := there[event.object]
			seen, isDestroyed := destroyed[event.object]
			switch {
			case event.operation == destroy && exists, event.operation == create && !exists && !isDestroyed:
				continue
			case event.operation == create && isDestroyed: // clients delete only objects that they have seen before
				over = seen - 1
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

// capacity is a model of a counter that never exceeds a limit.
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
