// Package initialize says which initializers a new namespace still waits for, and for how long.
//
// It follows "Extending Initializers" of the Namespace Population proposal.
package initialize

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Initializing tells whether a namespace is still being initialized. Without the label it is open, whatever it lists.
func Initializing(ns metav1.Object) bool {
	_, labelled := ns.GetLabels()[v1alpha1.InitializingLabel]
	return labelled
}

// Pending returns the initializers in a namespace's list, each once, in the list's order.
func Pending(ns metav1.Object) []string {
	var pending []string
	for entry := range strings.SplitSeq(ns.GetAnnotations()[v1alpha1.PendingAnnotation], ",") {
		if entry = strings.TrimSpace(entry); entry != "" && !slices.Contains(pending, entry) {
			pending = append(pending, entry)
		}
	}
	return pending
}

// Check says which selectors of a configuration can't be read, and why. Such an initializer selects no namespace.
func Check(configuration *v1alpha1.NamespaceInitializationConfiguration) error {
	var errs []error
	for _, initializer := range configuration.Initializers {
		if _, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err != nil {
			errs = append(errs, fmt.Errorf("initializer %s: namespaceSelector: %w", initializer.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Verdict is what becomes of a namespace's list.
type Verdict struct {
	// Pending is what the namespace still waits for. It opens when nothing is left.
	Pending []string
	// TimedOut are the initializers whose time is up. Those with FailureIgnore are no longer pending.
	TimedOut []v1alpha1.Initializer
	// Unknown are entries that no configuration names. They are no longer pending.
	Unknown []string
	// NextTimeout is the age in seconds at which the time of the next initializer is up, or 0.
	NextTimeout int64
}

// Judge says what becomes of the list of a namespace that is age seconds old. Populated says that nothing is left to be
// populated: only then does our own entry go.
func Judge(
	ns *corev1.Namespace, configurations []v1alpha1.NamespaceInitializationConfiguration, populated bool, age int64,
) Verdict {
	var v Verdict
	for _, name := range Pending(ns) {
		if name == v1alpha1.TemplateInitializer {
			if !populated {
				v.Pending = append(v.Pending, name)
			}
			continue
		}
		initializer, known := find(ns, configurations, name)
		timeout := int64(initializer.TimeoutSeconds)
		switch {
		case !known:
			v.Unknown = append(v.Unknown, name)
			continue
		case age >= timeout:
			v.TimedOut = append(v.TimedOut, initializer)
			if initializer.FailurePolicy == v1alpha1.FailureIgnore {
				continue
			}
		case v.NextTimeout == 0 || timeout < v.NextTimeout:
			v.NextTimeout = timeout
		}
		v.Pending = append(v.Pending, name)
	}
	return v
}

// find returns what configurations say about an initializer of a namespace. Where several that select the namespace
// name it, the strictest of what they say counts. If none of them selects it (any more), all that name it are asked: a
// change of labels must not be a way around an initializer.
func find(
	ns *corev1.Namespace, configurations []v1alpha1.NamespaceInitializationConfiguration, name string,
) (v1alpha1.Initializer, bool) {
	var selecting, naming []v1alpha1.Initializer
	for _, configuration := range configurations {
		for _, initializer := range configuration.Initializers {
			if initializer.Name != name {
				continue
			}
			naming = append(naming, initializer)
			if selector, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err == nil &&
				selector.Matches(labels.Set(ns.Labels)) {
				selecting = append(selecting, initializer)
			}
		}
	}
	if len(selecting) > 0 {
		return strictest(selecting), true
	}
	if len(naming) > 0 {
		return strictest(naming), true
	}
	return v1alpha1.Initializer{}, false
}

// strictest returns the longest timeout, and FailureIgnore only if all say so.
func strictest(initializers []v1alpha1.Initializer) v1alpha1.Initializer {
	sum := initializers[0]
	for _, initializer := range initializers[1:] {
		sum.TimeoutSeconds = max(sum.TimeoutSeconds, initializer.TimeoutSeconds)
		if initializer.FailurePolicy != v1alpha1.FailureIgnore {
			sum.FailurePolicy = initializer.FailurePolicy
		}
	}
	return sum
}
