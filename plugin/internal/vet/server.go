package vet

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// dryRun reports why the API server would reject an object. It returns an error if the API server could not check it.
func (c *checker) dryRun(ctx context.Context, object source.Object) error {
	mapping, err := c.cluster.Mapper.RESTMappingWithContext(ctx, object.GroupVersionKind().GroupKind(),
		object.GroupVersionKind().Version)
	isOurs := object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
	switch {
	case meta.IsNoMatchError(err) && isOurs:
		return cluster.NotInstalledError{}
	case meta.IsNoMatchError(err):
		c.skip(object, "",
			"the cluster does not have the kind: install its CustomResourceDefinition, or add it with --schema")
		return nil
	case err != nil:
		return err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace = cmp.Or(object.Namespace, metav1.NamespaceDefault)
	}
	data, err := c.sent(ctx, object)
	if err != nil {
		return err
	}
	force := true
	_, err = c.cluster.Dynamic.Resource(mapping.Resource).Namespace(namespace).Patch(ctx, object.Name,
		types.ApplyPatchType, render.EscapeJSON(data), metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, Force: &force, FieldManager: cli.FieldManager,
			FieldValidation: metav1.FieldValidationStrict,
		})
	var status apierrors.APIStatus
	switch ok := errors.As(err, &status); {
	case err == nil:
		return nil
	case !ok:
		return err
	case apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		c.skip(object, "metadata.namespace", "the namespace "+object.Namespace+" does not exist yet: create it")
		return nil
	case apierrors.IsNotFound(err) && isOurs:
		return cluster.NotInstalledError{}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err),
		len(schema.Rejected(status.Status().Message)) > 0:
		c.refused(object, status.Status())
		return nil
	}
	return err
}

// sent returns the text of an object for a dry run. A policy space whose parent is in the files, and is not stored yet,
// is sent without the parent, for which the API server would deny it. The hierarchy in the files is checked without it.
func (c *checker) sent(ctx context.Context, object source.Object) ([]byte, error) {
	if object.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("PolicySpace") {
		return object.Data, nil
	}
	alone := &unstructured.Unstructured{}
	if err := alone.UnmarshalJSON(object.Data); err != nil {
		return nil, err
	}
	parent, _, _ := unstructured.NestedString(alone.Object, "spec", "parent") // "" if it is not a string
	if !c.brought.spaces[parent] {
		return object.Data, nil
	}
	if _, err := c.cluster.PolicySpace(ctx, parent); !apierrors.IsNotFound(err) {
		return object.Data, nil
	}
	unstructured.RemoveNestedField(alone.Object, "spec", "parent")
	return alone.MarshalJSON()
}

// refused reports the reasons why the API server rejected an object.
func (c *checker) refused(object source.Object, status metav1.Status) {
	if status.Reason == metav1.StatusReasonInvalid && status.Details != nil && len(status.Details.Causes) > 0 {
		for _, cause := range status.Details.Causes {
			at := strings.Trim(cause.Field, "<>") // the API server names the object itself <nil>
			if at == "nil" {
				at = ""
			}
			c.violate(object, ruleServer, at, cause.Message, "")
		}
		return
	}
	remedy := ""
	if status.Reason == metav1.StatusReasonForbidden && !isDenial.MatchString(status.Message) {
		remedy = "ask a cluster administrator for this permission"
	}
	if problems := schema.Rejected(status.Message); len(problems) > 0 {
		for _, problem := range problems {
			c.violate(object, ruleServer, problem.Path, problem.Message, problem.Remedy)
		}
		return
	}
	for _, reason := range reasonsOf(status.Message) {
		if c.dependsOnFiles(object, reason) {
			continue
		}
		at := fieldIn(object, reason)
		c.violate(object, ruleServer, at, strings.TrimPrefix(reason, at+": "), remedy)
	}
}

// isDenial matches the beginning of a message with which admission denies a request. nstpl's own denials begin with the
// object.
var isDenial = regexp.MustCompile(`^admission webhook "[^"]*" denied the request: ` +
	`(?:[a-z]+ \S+(?::| has \d+ problems:)\s*)?` +
	`|ValidatingAdmissionPolicy|denied the request`)

// reasonsOf returns the reasons in a message of the API server. A denial of a template lists several.
func reasonsOf(message string) []string {
	message = codes.Trim(message)
	if at := isDenial.FindStringIndex(message); at != nil && at[0] == 0 {
		message = message[at[1]:]
	}
	var reasons []string
	for reason := range strings.SplitSeq("\n"+message, "\n- ") {
		if reason = strings.TrimSpace(reason); reason != "" {
			reasons = append(reasons, strings.ReplaceAll(reason, "\n", " "))
		}
	}
	return reasons
}

// anyFieldPath matches the path of a field of a template in a message.
var anyFieldPath = regexp.MustCompile(`\bspec\.(?:templates|overlays)\[\d+\](?:\.[\w-]+|\[[^\]\s]+\])*`)

// overlayName matches the name of an overlay in a message.
var overlayName = regexp.MustCompile(`\boverlay ([a-z0-9-]+)\b`)

// fieldIn returns the path of the field that a message is about: one that it names, or that of an object or an overlay
// of a template whose name it contains. It returns "" if there is none.
func fieldIn(object source.Object, message string) string {
	if path := anyFieldPath.FindString(message); path != "" {
		return path
	}
	if !object.IsTemplate() {
		return ""
	}
	template, _ := decodeTemplate(object)
	found, length := "", 0
	for i, name := range declared(template) {
		if len(name) > length && namesObject(message, name) {
			found, length = "spec.templates["+strconv.Itoa(i)+"]", len(name)
		}
	}
	if match := overlayName.FindStringSubmatch(message); match != nil && found == "" {
		for i, overlay := range template.Spec.Overlays {
			if overlay.Name == match[1] {
				return "spec.overlays[" + strconv.Itoa(i) + "]"
			}
		}
	}
	return found
}

// namesObject reports whether a message contains the name of an object in one of the usual notations:
// resourcequota/budget, ResourceQuota budget, or resourcequotas "budget".
func namesObject(message, object string) bool {
	kind, name, _ := strings.Cut(object, "/")
	kind, _, _ = strings.Cut(kind, ".")
	pattern := `(?i)\b` + regexp.QuoteMeta(kind) + `(?:e?s)?[.\w]*(?:/| "?)(?-i:` + regexp.QuoteMeta(name) +
		`)(?:[^\w-]|$)`
	found, err := regexp.MatchString(pattern, message)
	return err == nil && found
}
