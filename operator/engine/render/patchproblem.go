package render

import (
	"fmt"
	"regexp"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const (
	// maxTriedPatches and maxTriedObjects limit the search for the patch that fails, which builds the overlay up to
	// four times more.
	maxTriedPatches = 8
	maxTriedObjects = 128
)

// buildProblem returns why kustomize cannot build an overlay.
func buildProblem(
	canceled canceledFunc, part Part, overlay v1alpha1.Overlay, objects []*unstructured.Unstructured, reason error,
) Problem {
	patch, field := v1alpha1.Patch{}, ""
	switch i := failingPatch(canceled, overlay, objects); {
	case i >= 0:
		patch = overlay.Patches[i]
		field = fmt.Sprintf("patches[%d]", i)
	case len(overlay.Replicas) > 0:
		field = "replicas"
	}
	problem := Problem{Rule: ruleOverlay}
	problem.Message, problem.Remedy = explainBuild(reason.Error(), patch.Patch)
	return problem.inOverlay(part, field, overlay.Name)
}

// failingPatch returns the number of the first patch with which an overlay cannot be built, or -1.
func failingPatch(canceled canceledFunc, overlay v1alpha1.Overlay, objects []*unstructured.Unstructured) int {
	if len(overlay.Patches) > maxTriedPatches || len(objects) > maxTriedObjects {
		return -1
	}
	first := sort.Search(len(overlay.Patches), func(i int) bool {
		tried := overlay
		tried.Patches, tried.Replicas = overlay.Patches[:i+1], nil
		_, err := build(canceled, kustomizationOf(tried), objects)
		return err != nil
	})
	if first == len(overlay.Patches) {
		return -1
	}
	return first
}

var (
	patchedPath = regexp.MustCompile(`path:? '?(/[^\s':]*)`)
	testedPath  = regexp.MustCompile(`testing value (/\S*) failed`)
	operation   = regexp.MustCompile(`Unexpected kind: (.*)`)
	replicaName = regexp.MustCompile(`resource with name (\S+) does not match`)
)

// explainBuild returns the message of kustomize in words that need no knowledge of kustomize's code, and what to do.
func explainBuild(reason, patch string) (message, remedy string) {
	found := func(pattern *regexp.Regexp) string {
		if match := pattern.FindStringSubmatch(reason); match != nil {
			return match[1]
		}
		return ""
	}
	has := func(text string) bool { return strings.Contains(reason, text) }
	switch {
	case has("error parsing regexp"):
		return "the target is not a valid regular expression",
			"write the name of an object, or escape special characters"
	case has("unable to parse SM or JSON patch"):
		return explainPatch(patch)
	case has("must specify one of patch and path"):
		return "the patch is empty", "write a patch, or remove it"
	case has("must specify a target"):
		return "a JSON patch needs a target", "add target, with the kind and name of the objects to change"
	case has("no resource matches strategic merge patch"):
		return "the patch changes " + patchedObject(patch) + ", which the template does not declare",
			"correct its apiVersion, kind or name"
	case found(testedPath) != "":
		return "the test of " + found(testedPath) + " in the patch fails", ""
	case found(patchedPath) != "" && has("remove"):
		return "the patch removes " + found(patchedPath) + ", which does not exist", "leave the operation out"
	case found(patchedPath) != "" && (has("missing value") || has("does not apply")):
		return "the patch changes " + found(patchedPath) + ", which does not exist",
			"use the operation add to create it"
	case found(operation) != "":
		return fmt.Sprintf("%q is not an operation of a JSON patch", found(operation)),
			"use add, copy, move, remove, replace or test"
	case found(replicaName) != "":
		return "no Deployment, ReplicaSet, ReplicationController or StatefulSet has the name " + found(replicaName), ""
	case has("missing metadata.name"):
		return "the patch removes metadata.name", "an overlay must not change apiVersion, kind or name"
	}
	first, _, _ := strings.Cut(reason, "\n")
	return "kustomize reports: " + first, ""
}

const (
	invalidYAML       = "the patch is not valid YAML"
	invalidYAMLRemedy = "correct its indentation, brackets and quotes"
)

// explainPatch returns what is wrong with the text of a patch.
func explainPatch(patch string) (message, remedy string) {
	var value any
	if utilyaml.Unmarshal([]byte(patch), &value) != nil {
		return invalidYAML, invalidYAMLRemedy
	}
	switch value := value.(type) {
	case []any:
		return "the patch is not a valid JSON patch",
			"write a list of operations, such as {op: add, path: /data/a, value: b}"
	case map[string]any:
		object := unstructured.Unstructured{Object: value}
		if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" {
			return "the patch does not name the object that it changes",
				"add apiVersion, kind and metadata.name, even if there is a target"
		}
		return "the patch cannot be read", "correct the types of its fields"
	}
	return "the patch is neither an object nor a list of operations",
		"write the fields to change, with apiVersion, kind and metadata.name"
}

// patchedObject returns the name of the object that a strategic merge patch changes.
func patchedObject(patch string) string {
	object := unstructured.Unstructured{}
	if utilyaml.Unmarshal([]byte(patch), &object.Object) != nil || object.GetKind() == "" {
		return "an object"
	}
	return IDOf(&object).String()
}
