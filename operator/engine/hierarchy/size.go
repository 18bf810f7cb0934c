package hierarchy

import (
	"fmt"
	"slices"
)

// The size of a template in bytes at most: for kubectl apply, which stores the whole object in an annotation, and for
// etcd.
const (
	maxApplied = 200_000
	maxStored  = 1_200_000
)

// checkSizes reports a directory whose objects do not fit into one template.
func (l *loader) checkSizes(d *Directory) {
	size := 0
	isNamespace := slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace })
	for _, object := range d.objects {
		if object.kind == kindRole || object.kind == kindRoleBinding || object.kind == kindResourceQuota &&
			isNamespace {
			size += object.size
		}
	}
	switch {
	case size > maxStored:
		l.violate("size", d.Path, 0,
			fmt.Sprintf("its objects have %d bytes in total, more than the %d that fit into a template", size,
				maxStored),
			"distribute them over several directories")
	case size > maxApplied:
		l.warn(d.Path, 0,
			fmt.Sprintf("its objects have %d bytes in total: apply the output of hydrate with kubectl apply --server-side",
				size))
	}
}
