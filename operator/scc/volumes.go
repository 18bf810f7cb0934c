package scc

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func (p *provider) checkVolumes(volumes []corev1.Volume) {
	for i := range volumes {
		field := fmt.Sprintf("spec.volumes[%d]", i)
		kind, known := typeOf(&volumes[i].VolumeSource)
		switch {
		case !known:
			p.deny(field, "its type is unknown")
		case !p.allowsVolume(kind) &&
			(kind != "projected" || !p.allowsVolume("secret") || !isInjectedToken(volumes[i].Projected)):
			p.deny(field, "%s volumes are not allowed%s", kind, onlyAllowed(p.Volumes))
		case kind == "flexVolume" && len(p.AllowedFlexVolumes) > 0:
			driver := volumes[i].FlexVolume.Driver
			if !slices.ContainsFunc(p.AllowedFlexVolumes, func(a v1alpha1.AllowedFlexVolume) bool {
				return a.Driver == driver
			}) {
				p.deny(field+".flexVolume.driver", "driver %q is not allowed", driver)
			}
		}
	}
}

func (p *provider) allowsVolume(kind v1alpha1.FSType) bool {
	return slices.Contains(p.Volumes, v1alpha1.FSTypeAll) || slices.Contains(p.Volumes, kind)
}

// named are the types that have other names in constraints than in pods.
var named = map[string]v1alpha1.FSType{"cephfs": "cephFS", "vsphereVolume": "vsphere", "storageos": "storageOS"}

// typeOf returns the type of a volume by its name in constraints, and whether it is known. The type of a volume without
// a source is emptyDir, as in the API server.
func typeOf(source *corev1.VolumeSource) (v1alpha1.FSType, bool) {
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if value.Field(i).IsNil() {
			continue
		}
		field, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		kind, renamed := named[field]
		if !renamed {
			kind = v1alpha1.FSType(field)
		}
		return kind, kind == v1alpha1.FSTypeHostPath || slices.Contains(volumeTypes, kind)
	}
	return "emptyDir", true
}

// isInjectedToken reports whether a projected volume contains no more than the volume with a ServiceAccount's token
// that admission adds.
func isInjectedToken(volume *corev1.ProjectedVolumeSource) bool {
	for _, source := range volume.Sources {
		switch {
		case source.ServiceAccountToken != nil:
			if source.ServiceAccountToken.Path != "token" || source.ServiceAccountToken.Audience != "" {
				return false
			}
		case source.ConfigMap != nil:
			items := source.ConfigMap.Items
			if source.ConfigMap.Name != "kube-root-ca.crt" || len(items) != 1 || items[0].Key != "ca.crt" ||
				items[0].Path != "ca.crt" {
				return false
			}
		case source.DownwardAPI != nil:
			if slices.ContainsFunc(source.DownwardAPI.Items, func(item corev1.DownwardAPIVolumeFile) bool {
				return item.Path != "namespace" || item.FieldRef == nil ||
					item.FieldRef.FieldPath != "metadata.namespace"
			}) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
