// Package reporting holds what the conditions and Events of all controllers have in common.
package reporting

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Controller is the reporting controller of Events.
const Controller = "nstpl-operator"

// MaxMessage is the length in bytes at which Shorten cuts a message. A condition is stored with its object, which must
// stay small.
const MaxMessage = 1000

// InNamespace returns a reference to a namespace for Events about it. Its own namespace field is set, too, so that the
// Events are stored in the namespace, where its users may read them.
func InNamespace(ns *corev1.Namespace) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, Namespace: ns.Name, UID: ns.UID}
}

// Shorten cuts a message after MaxMessage bytes, between characters.
func Shorten(message string) string {
	if len(message) <= MaxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxMessage], "") + "…"
}
