package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// state has the objects, namespaces, templates and policyspaces of a run by kind and name, without content that differs
// between runs, such as times and UIDs.
type state map[string]string

// comparedKinds are the kinds whose objects are compared.
var comparedKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "LimitRange"},
	{Version: "v1", Kind: "ResourceQuota"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
}

// kubernetesObjects are objects that Kubernetes creates in each namespace, and the counting ResourceQuota, whose
// numbers are updated late.
var kubernetesObjects = []string{"kube-root-ca.crt", "default", v1alpha1.QuotaName}

// state reads the state of the run.
func (r *run) state(ctx context.Context) (state, error) {
	s := state{}
	namespaces := &corev1.NamespaceList{}
	if err := r.client.List(ctx, namespaces, client.MatchingLabels{runLabel: r.id}); err != nil {
		return nil, err
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		r.note(s, "namespace "+ns.Name, ns)
		for _, kind := range comparedKinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := r.client.List(ctx, list, client.InNamespace(ns.Name)); err != nil {
				return nil, err
			}
			for j := range list.Items {
				if object := &list.Items[j]; !slices.Contains(kubernetesObjects, object.GetName()) {
					r.note(s, fmt.Sprintf("%s %s/%s", strings.ToLower(kind.Kind), ns.Name, object.GetName()), object)
				}
			}
		}
	}
	templates, spaces := &v1alpha1.NamespaceTemplateList{}, &v1alpha1.PolicySpaceList{}
	if err := r.client.List(ctx, templates); err != nil {
		return nil, err
	}
	for i := range templates.Items {
		r.note(s, "template "+templates.Items[i].Name, &templates.Items[i])
	}
	if err := r.client.List(ctx, spaces); err != nil {
		return nil, err
	}
	for i := range spaces.Items {
		r.note(s, "policyspace "+spaces.Items[i].Name, &spaces.Items[i])
	}
	if r.isFollowed {
		if err := r.noteSync(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// note adds an object to a state.
func (r *run) note(s state, what string, object client.Object) {
	if !strings.Contains(what, r.id+"-") {
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err) // objects from the API server can always be encoded
	}
	normalize(content)
	text, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		panic(err)
	}
	s[strings.ReplaceAll(what, r.id, "RUN")] = r.withoutNames(string(text))
}

// withoutNames returns a text without the run's id and the hashes of its commits.
func (r *run) withoutNames(text string) string {
	pairs := []string{r.id, "RUN"}
	for _, hash := range r.commits {
		name := "EARLIER"
		if hash == r.commits[len(r.commits)-1] {
			name = "LAST"
		}
		pairs = append(pairs, hash, name, hash[:7], name)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// uidOfTemplate is what the record of a namespace's labels and annotations has of a template besides the name.
var uidOfTemplate = regexp.MustCompile(`"uid":"[^"]*",?`)

// depthsInRecord is what that record has of the depth labels of a namespace that was moved.
var depthsInRecord = regexp.MustCompile(`,?"policySpaces":\{[^}]*\}\}`)

// digestOfGrant is what the record of a namespace's objects has of a Role or RoleBinding, whose name may contain the
// run's id.
var digestOfGrant = regexp.MustCompile(`R[0-9a-z]+`)

// hashOfDeclaration is what it has of a declaration, which may contain the run's id, too.
var hashOfDeclaration = regexp.MustCompile(`=[0-9a-f]{8}\b`)

// formerGrants are the grants of templates that selected the namespace once. Which ones did is not the same if the
// operator did not see each change of them.
var formerGrants = regexp.MustCompile(`,?~=R(\.R)*`)

// hashOfValue is what the record of a tree's labels and annotations has of a value, which may contain the run's id.
var hashOfValue = regexp.MustCompile(`=[0-9a-f]{16}\b`)

// normalize removes content that differs between runs with the same result.
func normalize(content map[string]any) {
	metadata := content["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp"} {
		delete(metadata, field)
	}
	metadata["managedFields"] = owners(metadata)
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.ExpiresAnnotation} {
			if annotations[key] != nil {
				annotations[key] = "set"
			}
		}
		// Whether IDs are given depends on the constraint of another run, which may still exist when this one begins.
		// The scenarios uids and accounts check the IDs.
		for _, key := range []string{
			v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
			v1alpha1.AccountUIDAnnotation,
		} {
			delete(annotations, key)
		}
		// A fault may move a namespace more or less often before it is where it belongs.
		if record, ok := annotations[v1alpha1.NamespaceMetadataAnnotation].(string); ok {
			record = depthsInRecord.ReplaceAllString(uidOfTemplate.ReplaceAllString(record, ""), "")
			if annotations[v1alpha1.NamespaceMetadataAnnotation] = record; record == "{}" {
				delete(annotations, v1alpha1.NamespaceMetadataAnnotation)
			}
		}
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		if record, ok := annotations[v1alpha1.ExistingAnnotation].(string); ok {
			record = formerGrants.ReplaceAllString(digestOfGrant.ReplaceAllString(record, "R"), "")
			annotations[v1alpha1.ExistingAnnotation] = hashOfDeclaration.ReplaceAllString(record, "=HASH")
		}
		if record, ok := annotations[v1alpha1.TreeMetadataAnnotation].(string); ok {
			annotations[v1alpha1.TreeMetadataAnnotation] = hashOfValue.ReplaceAllString(record, "=HASH")
		}
	}
	status, ok := content["status"].(map[string]any)
	if !ok {
		return
	}
	for _, field := range []string{"observedGeneration", "reservations", "sharedWith"} {
		delete(status, field)
	}
	// The number of a revision depends on how many edits the operator saw.
	revisions, _ := status["revisions"].([]any)
	for i, revision := range revisions {
		if revision, ok := revision.(map[string]any); ok {
			revisions[i] = map[string]any{"state": revision["state"]}
		}
	}
	conditions, _ := status["conditions"].([]any)
	for _, condition := range conditions {
		if condition, ok := condition.(map[string]any); ok {
			for _, field := range []string{"lastTransitionTime", "observedGeneration"} {
				delete(condition, field)
			}
		}
	}
	slices.SortFunc(conditions, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// owners returns the managers of an object with their fields, without times. It ignores namespaces, whose fields may be
// written in any order.
func owners(metadata map[string]any) []any {
	entries, _ := metadata["managedFields"].([]any)
	if metadata["namespace"] == nil {
		return nil
	}
	var kept []any
	for _, entry := range entries {
		if entry, ok := entry.(map[string]any); ok && entry["subresource"] == nil {
			kept = append(kept,
				map[string]any{
					"manager": entry["manager"], "operation": entry["operation"], "fields": entry["fieldsV1"],
				})
		}
	}
	slices.SortFunc(kept, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return kept
}

// differences returns how a state differs from the expected one.
func (s state) differences(want state) []string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(want)) {
		switch found, ok := s[what]; {
		case !ok:
			all = append(all, what+" is missing")
		case found != want[what]:
			all = append(all, what+" differs: "+firstDifference(found, want[what]))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(s)) {
		if _, ok := want[what]; !ok {
			all = append(all, what+" exists, and would not without the fault")
		}
	}
	return all
}

// firstDifference returns the first line at which two texts differ.
func firstDifference(found, want string) string {
	a, b := strings.Split(found, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%s instead of %s", strings.TrimSpace(a[i]), strings.TrimSpace(b[i]))
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(a), len(b))
}
