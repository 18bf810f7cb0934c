package output

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// List is a list that commands print as JSON and YAML. Programs can rely on its version and kind, as with lists of the
// API.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	// Items are not null if there are none.
	Items []T `json:"items"`
}

// NewList returns a list of a kind, such as NamespaceStatusList.
func NewList[T any](kind string, items []T) List[T] {
	return List[T]{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind},
		Items:    append([]T{}, items...),
	}
}
