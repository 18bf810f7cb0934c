package scc

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// UnknownFields are the fields of a pod that this version does not know, and that are lost when the pod is decoded: an
// API server of a later version has them.
type UnknownFields struct {
	// Volumes are the fields of volumes, and SecurityContexts those of the security contexts of the pod and its
	// containers.
	Volumes, SecurityContexts []string
}

// UnknownFieldsOf returns the fields of a pod that this version does not know.
func UnknownFieldsOf(pod map[string]any) UnknownFields {
	unknown := UnknownFields{}
	volumes, _, _ := unstructured.NestedSlice(pod, "spec", "volumes")
	for i, volume := range volumes {
		fields, _ := volume.(map[string]any)
		unknown.Volumes = append(unknown.Volumes,
			unknownIn(fmt.Sprintf("spec.volumes[%d]", i), fields, reflect.TypeFor[corev1.Volume]())...)
	}
	context, _, _ := unstructured.NestedMap(pod, "spec", "securityContext")
	unknown.SecurityContexts = unknownBelow("spec.securityContext", context,
		reflect.TypeFor[corev1.PodSecurityContext]())
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		containers, _, _ := unstructured.NestedSlice(pod, "spec", list)
		for i, container := range containers {
			fields, _ := container.(map[string]any)
			context, _, _ := unstructured.NestedMap(fields, "securityContext")
			unknown.SecurityContexts = append(unknown.SecurityContexts,
				unknownBelow(fmt.Sprintf("spec.%s[%d].securityContext", list, i), context,
					reflect.TypeFor[corev1.SecurityContext]())...)
		}
	}
	return unknown
}

// unknownIn returns the paths of the set fields of an object that its type does not have.
func unknownIn(path string, fields map[string]any, of reflect.Type) []string {
	known := map[string]bool{}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		known[name] = true
	}
	var unknown []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !known[field] && fields[field] != nil {
			unknown = append(unknown, path+"."+field)
		}
	}
	return unknown
}

// unknownBelow returns the paths of the set fields of an object, and of the objects in its fields, that their types do
// not have.
func unknownBelow(path string, fields map[string]any, of reflect.Type) []string {
	unknown := unknownIn(path, fields, of)
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		below, isObject := fields[name].(map[string]any)
		if isObject && field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.Struct {
			unknown = append(unknown, unknownBelow(path+"."+name, below, field.Type.Elem())...)
		}
	}
	return unknown
}

// denyUnknown denies the fields that this version does not know, unless the constraint allows all volumes or privileged
// containers: their effect may be more than what the constraint allows.
func (p *provider) denyUnknown(fields UnknownFields) {
	if !p.allowsVolume(v1alpha1.FSTypeAll) {
		for _, field := range fields.Volumes {
			p.deny(field, "its type is unknown")
		}
	}
	if !p.AllowPrivilegedContainer {
		for _, field := range fields.SecurityContexts {
			p.deny(field, "this version of nstpl does not know the field: leave it out, or update nstpl")
		}
	}
}
