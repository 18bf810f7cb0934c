package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// helmRelease is the annotation in which Helm records its release on each object that it manages. It stays on the
// objects that 'helm uninstall' keeps.
const helmRelease = "meta.helm.sh/release-name"

// applyRemedy is the remedy for objects of the manifests that are missing or differ.
func (a *after) applyRemedy() string {
	if upgrade := a.helmUpgrade(); upgrade != "" {
		return upgrade
	}
	return "apply " + manifestFor(a.server.Version) + " of the operator's release, or the kustomization that you applied"
}

// helmUpgrade returns how to apply the manifests again if Helm manages them or managed them last, or "". install.yaml
// would remove what the values set.
func (a *after) helmUpgrade() string {
	for _, object := range a.manifests {
		found := a.stored[refOf(object)].value
		if found != nil && found.GetAnnotations()[helmRelease] != "" {
			release := found.GetAnnotations()[helmRelease]
			return fmt.Sprintf("run 'helm upgrade %s CHART --install --namespace %s --take-ownership' with the chart of "+
				"the operator's release and your values", release, v1alpha1.OperatorNamespace)
		}
	}
	return ""
}

// checkDefinitions checks whether nstpl's CustomResourceDefinitions are installed and are those of the plugin's
// version.
func checkDefinitions(a *after) []Result {
	const id = "customresourcedefinitions"
	var missing, broken, deleted, other []string
	errs := map[ref]error{}
	for _, want := range a.definitions {
		object := ref{kind: definitionKind, name: want.Name}
		switch found := a.stored[object]; {
		case apierrors.IsNotFound(found.err):
			missing = append(missing, object.String())
		case found.err != nil:
			errs[object] = found.err
		case found.value.GetDeletionTimestamp() != nil:
			deleted = append(deleted, object.String())
		case !isEstablished(found.value):
			broken = append(broken, object.String())
		case !isSameDefinition(want, found.value):
			other = append(other, object.String())
		}
	}
	j := unreadObjects(id, errs)
	j.add(Failure, "definitions are missing", missing, a.applyRemedy())
	j.add(Failure, "definitions are being deleted, with all of their objects", deleted,
		"when they are deleted, "+a.applyRemedy()+"; docs/operations.md says what to do if they stay Terminating")
	j.add(Failure, "definitions are not established, so the API server does not serve them", broken,
		"'kubectl describe' shows the reason in their conditions")
	j.add(Warning, "definitions differ from those of this plugin's version, "+a.plugin, other,
		a.applyRemedy()+", and use the plugin of the same release")
	return j.orOK(output.Count(len(a.definitions), "CustomResourceDefinition") + " of this plugin's version installed")
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == string(apiextensionsv1.Established) && fields["status"] == "True"
	})
}

// isSameDefinition reports whether a stored definition has the spec of a definition of the plugin.
func isSameDefinition(want *apiextensionsv1.CustomResourceDefinition, stored *unstructured.Unstructured) bool {
	found := &apiextensionsv1.CustomResourceDefinition{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, found) != nil {
		return false
	}
	want = want.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&want.Spec)
	apiextensionsv1.SetDefaults_CustomResourceDefinition(want)
	return reflect.DeepEqual(jsonOf(want.Spec), jsonOf(found.Spec))
}

// jsonOf returns a value as JSON decodes it, in which the order of fields makes no difference.
func jsonOf(value any) (decoded any) {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := utiljson.Unmarshal(data, &decoded); err != nil {
		return err
	}
	return decoded
}

// checkObjects checks whether the objects of the manifests exist, and whether roles and policies are as installed.
// Objects with checks of their own are not among them.
func checkObjects(a *after) []Result {
	const id = "installed-objects"
	var missing, different []string
	errs := map[ref]error{}
	total := 0
	for _, want := range a.manifests {
		object := refOf(want)
		if object == operatorDeployment || isMutatingPolicy(want) && a.mutatesByWebhook() {
			continue
		}
		total++
		switch found := a.stored[object]; {
		case apierrors.IsNotFound(found.err):
			missing = append(missing, object.String())
		case found.err != nil:
			errs[object] = found.err
		case !isAsInstalled(want, found.value):
			different = append(different, object.String())
		}
	}
	j := unreadObjects(id, errs)
	for _, object := range missing[:min(len(missing), maxNamed)] {
		j.results = append(j.results, Result{
			Check: id, Status: Failure, Object: object, Message: object + " not found", Remedy: a.applyRemedy(),
		})
	}
	if rest := len(missing) - maxNamed; rest > 0 {
		j.report(Failure, output.Count(rest, "more object")+" not found", a.applyRemedy())
	}
	if a.operatorVersion() == a.plugin { // the objects of another version differ anyway
		j.add(Warning, output.Count(len(different), "object")+" changed since the installation", different,
			"if you did not change them on purpose, "+a.applyRemedy())
	}
	return j.orOK(output.Count(total, "object") + " of the installation found")
}

// isAsInstalled reports whether a stored role, binding or policy has everything that the manifests declare. An
// admission policy or its binding must have nothing else: a further condition or selector switches it off. Of objects
// of other kinds, other programs or administrators change some fields.
func isAsInstalled(want, stored *unstructured.Unstructured) bool {
	if want.GetLabels()[v1alpha1.AggregateLabel] == "true" {
		return true // administrators choose the kinds that templates can declare
	}
	if strings.Contains(want.GetKind(), "AdmissionPolicy") {
		declared, found := withoutDefaults(want.Object["spec"]), withoutDefaults(stored.Object["spec"])
		return contains(found, declared) && contains(declared, found)
	}
	if !strings.Contains(want.GetKind(), "Role") {
		return true
	}
	for _, field := range []string{"rules", "roleRef", "subjects"} {
		if declared, ok := want.Object[field]; ok && !contains(jsonOf(stored.Object[field]), jsonOf(declared)) {
			return false
		}
	}
	return true
}

// withoutDefaults returns the spec of an admission policy without the fields that have the API server's defaults,
// except for empty selectors.
func withoutDefaults(spec any) any {
	spec = jsonOf(spec)
	dropDefaults(spec)
	return spec
}

func dropDefaults(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(name string, field any) bool {
			dropDefaults(field)
			return name == "matchPolicy" && field == "Equivalent" || name == "scope" && field == "*"
		})
	case []any:
		for _, item := range value {
			dropDefaults(item)
		}
	}
}

// contains reports whether a value has all fields of another one, and lists all of its items, in any order.
func contains(value, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		fields, _ := value.(map[string]any)
		for name, field := range wanted {
			if !contains(fields[name], field) {
				return false
			}
		}
		return len(wanted) == 0 || fields != nil
	case []any:
		items, _ := value.([]any)
		for _, item := range wanted {
			if !slices.ContainsFunc(items, func(other any) bool { return contains(other, item) }) {
				return false
			}
		}
		return true
	case string:
		text, ok := value.(string)
		return ok && withoutSpace(text) == withoutSpace(wanted)
	default:
		return reflect.DeepEqual(value, wanted)
	}
}

// withoutSpace returns a text without spaces and line breaks, which parsers of YAML place differently in long
// expressions.
func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// checkVersions compares the versions of the plugin and the operator.
func checkVersions(a *after) Result {
	r := Result{Check: "versions", Status: OK}
	switch operator := a.operatorVersion(); {
	case apierrors.IsNotFound(a.lease.err):
		r.Status, r.Message = Unknown, "the version of the operator is unknown, since no operator has recorded it"
		r.Remedy = podsRemedy
	case a.lease.err != nil:
		return unread(r.Check, "get the lease "+v1alpha1.OperatorLease+" in namespace "+v1alpha1.OperatorNamespace,
			a.lease.err)
	case operator == "":
		r.Status, r.Message = Unknown, "the operator has not recorded its version"
		r.Remedy = "use releases of the plugin and the operator with the same version"
	case operator != a.plugin:
		r.Status = Warning
		r.Message = fmt.Sprintf("the plugin has version %s, and the operator %s", a.plugin, operator)
		r.Remedy = "use the plugin of version " + operator + ", or upgrade the operator"
	default:
		r.Message = "plugin and operator have version " + operator
	}
	return r
}

// operatorVersion returns the version of the operator that leads, or an empty string if it is unknown.
func (a *after) operatorVersion() string {
	if a.lease.value == nil {
		return ""
	}
	return a.lease.value.Labels[v1alpha1.VersionLabel]
}
