// Package initialize decides whether a namespace is being initialized, and which initializers it still waits for.
//
// A new namespace that templates select is created with the label policy/namespace-initializing and with a list of
// initializers in the annotation policy/namespace-initializers-pending. The entry v1alpha1.TemplateInitializer stands
// for the operator, which populates the namespace. All other entries are declared by
// NamespaceInitializationConfigurations and belong to other controllers, which remove their own entries when they have
// finished. While a namespace is being initialized, only initializers may write into it.
//
// Initializing reads the label, and Pending reads the list. Judge decides which entries remain on the list: it takes
// the namespace and its age, the configurations, and whether the namespace is populated. Three rules hold:
//
//   - The label alone decides. A namespace without it is not being initialized, whatever its list contains.
//   - An entry that no configuration declares is dropped, because no controller would ever remove it.
//   - If several configurations declare the same initializer, the strictest settings apply.
package initialize

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Initializing reports whether a namespace is being initialized: whether it has the label, with any value.
func Initializing(ns metav1.Object) bool {
	_, labeled := ns.GetLabels()[v1alpha1.InitializingLabel]
	return labeled
}

// Pending returns the initializers that a namespace's annotation lists, each once and in the order of the list.
func Pending(ns metav1.Object) []string {
	var pending []string
	listed := map[string]bool{"": true}
	for entry := range strings.SplitSeq(ns.GetAnnotations()[v1alpha1.PendingAnnotation], ",") {
		if entry = strings.TrimSpace(entry); !listed[entry] {
			listed[entry] = true
			pending = append(pending, entry)
		}
	}
	return pending
}

// A list in a request to create a namespace counts as empty if it has more characters or entries. That bounds what
// admission does with it. The admission policies have the same limits.
const (
	MaxRequestedCharacters = 8192
	MaxRequestedEntries    = 512
)

// Requested returns the initializers that a request to create a namespace lists, like Pending, or none if the list is
// too long. Pending has no such limit: admission adds entries, and a stored list with them must not count as empty.
func Requested(ns metav1.Object) []string {
	list := ns.GetAnnotations()[v1alpha1.PendingAnnotation]
	if utf8.RuneCountInString(list) > MaxRequestedCharacters || strings.Count(list, ",") >= MaxRequestedEntries {
		return nil
	}
	return Pending(ns)
}

// Check returns an error for each initializer of a configuration whose namespaceSelector is invalid. Such an
// initializer selects no namespace.
func Check(configuration *v1alpha1.NamespaceInitializationConfiguration) error {
	var errs []error
	for _, initializer := range configuration.Initializers {
		if _, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err != nil {
			errs = append(errs, fmt.Errorf("initializer %s: namespaceSelector: %w", initializer.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Verdict is the new state of a namespace's list of initializers.
type Verdict struct {
	// Pending are the initializers that the namespace still waits for. The namespace is initialized when there are
	// none.
	Pending []string
	// TimedOut are the initializers that did not finish within their timeoutSeconds. Those with FailureIgnore are no
	// longer pending.
	TimedOut []v1alpha1.Initializer
	// Unknown are entries that no configuration declares. They are no longer pending.
	Unknown []string
	// NextTimeout is the age of the namespace in seconds at which the next initializer times out, or 0 if none does.
	NextTimeout int64
}

// Judge returns the new state of the list of a namespace that is age seconds old. populated reports whether every
// declared object is in the namespace: only then is v1alpha1.TemplateInitializer dropped.
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
		initializer, declared := find(ns, configurations, name)
		timeout := int64(initializer.TimeoutSeconds)
		switch {
		case !declared:
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

// find returns the settings of an initializer that apply to a namespace, and whether any configuration declares it. If
// several declarations select the namespace, the strictest settings apply. If none does, which is so after a change of
// the namespace's labels, all declarations of that name count: changing labels must not be a way around an initializer.
func find(
	ns *corev1.Namespace, configurations []v1alpha1.NamespaceInitializationConfiguration, name string,
) (v1alpha1.Initializer, bool) {
	var selecting, declaring []v1alpha1.Initializer
	for _, configuration := range configurations {
		for _, initializer := range configuration.Initializers {
			if initializer.Name != name {
				continue
			}
			declaring = append(declaring, initializer)
			if selector, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err == nil &&
				selector.Matches(labels.Set(ns.Labels)) {
				selecting = append(selecting, initializer)
			}
		}
	}
	if len(selecting) > 0 {
		return strictest(selecting), true
	}
	if len(declaring) > 0 {
		return strictest(declaring), true
	}
	return v1alpha1.Initializer{}, false
}

// strictest returns the longest timeout, and FailureIgnore only if all initializers have it.
func strictest(initializers []v1alpha1.Initializer) v1alpha1.Initializer {
	result := initializers[0]
	for _, initializer := range initializers[1:] {
		result.TimeoutSeconds = max(result.TimeoutSeconds, initializer.TimeoutSeconds)
		if initializer.FailurePolicy != v1alpha1.FailureIgnore {
			result.FailurePolicy = initializer.FailurePolicy
		}
	}
	return result
}
