// Package reporting contains what all controllers share when they write conditions and Events.
package reporting

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Controller is the name of the reporting controller in Events.
const Controller = "nstpl-operator"

// MaxMessage is the length in bytes to which Shorten cuts a message. A condition is part of its object, which must stay
// small.
const MaxMessage = 1000

// InNamespace returns a reference to a namespace for Events about it. The namespace field of the reference is set, so
// that the Events are stored in that namespace, where its users may read them.
func InNamespace(ns *corev1.Namespace) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, Namespace: ns.Name, UID: ns.UID}
}

// Count returns a number and a noun, which gets an s unless the number is 1.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Shorten returns a message that is cut between two characters if it is longer than MaxMessage.
func Shorten(message string) string {
	if len(message) <= MaxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxMessage], "") + "…"
}
