package inforce

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ownedBy is an entry of managedFields.
func ownedBy(manager, fields string, second int64) metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: &metav1.FieldsV1{}}
	e.FieldsV1.SetRawString(fields)
	e.Time = new(metav1.NewTime(time.Unix(second, 0)))
	return e
}

func TestDifference(t *testing.T) {
	t.Parallel()
	const (
		rbac   = `"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", `
		policy = `"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", `
		pod    = `"apiVersion": "v1", "kind": "Pod", `
		config = `"apiVersion": "v1", "kind": "ConfigMap", `
		nstpl  = `"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "NamespaceTemplate", `
		space  = `"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "PolicySpace", `
	)
	for name, test := range map[string]struct {
		of, declared, stored string
		owned                string
		want                 string
	}{
		"as declared":                {"", `"data": {"a": "b"}`, `"data": {"a": "b"}`, "", ""},
		"defaults and other fields":  {"", `"spec": {"a": 1}`, `"spec": {"a": 1, "b": 2}, "c": 3`, "", ""},
		"another value":              {"", `"data": {"a": "b"}`, `"data": {"a": "rewritten"}`, "", "data.a"},
		"a removed value":            {"", `"data": {"a": "b", "c": "d"}`, `"data": {"a": "b"}`, "", "data.c"},
		"a removed map":              {"", `"data": {"a": "b"}`, ``, "", "data"},
		"a string instead of a map":  {"", `"data": {}`, `"data": "b"`, "", "data"},
		"quantities":                 {"", `"a": "1000m", "b": 0.5, "c": "4096Mi", "d": 1`, `"a": "1", "b": "500m", "c": "4Gi", "d": "1"`, "", ""},
		"a slow quantity":            {"", `"a": "1e-100"`, `"a": "1n"`, "", "a"},
		"a quantity of many digits":  {"", `"a": "1e100"`, `"a": "10e99"`, "", "a"},
		"another quantity":           {"", `"a": "1000m"`, `"a": "2"`, "", "a"},
		"durations and times":        {"", `"a": "60m", "b": "2026-01-01T00:00:00.000Z"`, `"a": "1h0m0s", "b": "2026-01-01T00:00:00Z"`, "", ""},
		"values that mean none":      {"", `"a": false, "b": 0, "c": "", "d": null, "e": {}, "f": []`, ``, "", ""},
		"a default for null":         {"", `"spec": {"size": null, "list": [{"a": null}], "map": null}`, `"spec": {"size": 5, "list": [{"a": "b"}], "map": {"c": "d"}}`, "", ""},
		"a value for a null item":    {"", `"list": [null]`, `"list": [5]`, "", "list[0]"},
		"a value for none":           {"", `"clusterIP": "", "ports": [{"nodePort": 0, "targetPort": 0}]`, `"clusterIP": "10.0.0.1", "ports": [{"nodePort": 30000, "targetPort": 80}]`, "", ""},
		"none for a value":           {"", `"a": true`, ``, "", "a"},
		"true for false":             {"", `"a": false`, `"a": true`, "", "a"},
		"a number for zero":          {"", `"replicas": 0`, `"replicas": 3`, "", "replicas"},
		"a text for zero":            {"", `"hard": {"pods": 0}`, `"hard": {"pods": "5"}`, "", "hard.pods"},
		"numbers of two types":       {"", `"a": 1`, `"a": 1.0`, "", ""},
		"a large number":             {"", `"a": 9007199254740993`, `"a": 9007199254740992`, "", "a"},
		"stringData of a Secret":     {`"apiVersion": "v1", "kind": "Secret", `, `"stringData": {"a": "b"}`, `"data": {"a": "Yg=="}`, "", ""},
		"an altered stringData":      {`"apiVersion": "v1", "kind": "Secret", `, `"stringData": {"a": "b"}`, `"data": {"a": "Yw=="}`, "", "stringData.a"},
		"bytes of a Secret in lines": {`"apiVersion": "v1", "kind": "Secret", `, `"data": {"a": "AAEC\nAwQF\n"}`, `"data": {"a": "AAECAwQF"}`, "", ""},
		"bytes like a quantity":      {`"apiVersion": "v1", "kind": "Secret", `, `"data": {"a": "0100"}`, `"data": {"a": "1e02"}`, "", "data.a"},
		"a text like a quantity":     {`"apiVersion": "v1", "kind": "Secret", `, `"stringData": {"a": "1000m"}`, `"data": {"a": "MQ=="}`, "", "stringData.a"},
		"a text for an empty one":    {`"apiVersion": "v1", "kind": "Secret", `, `"stringData": {"a": ""}`, `"data": {"a": "MQ=="}`, "", "stringData.a"},
		"the namespace of an object": {"", `"metadata": {"name": "a", "namespace": "b", "creationTimestamp": null}`, `"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}`, "", ""},
		"a status":                   {"", `"status": {"a": 1}`, ``, "", ""},
		"texts of a ConfigMap":       {config, `"data": {"a": "1000m"}`, `"data": {"a": "1"}`, "", "data.a"},
		"bytes in lines":             {config, `"binaryData": {"a": "AAEC\nAwQF\n"}`, `"binaryData": {"a": "AAECAwQF"}`, "", ""},
		"other bytes":                {config, `"binaryData": {"a": "AAEC"}`, `"binaryData": {"a": "AAED"}`, "", "binaryData.a"},
		"bytes for none":             {config, `"binaryData": {"a": ""}`, `"binaryData": {"a": "AAED"}`, "", "binaryData.a"},
		"removed bytes":              {config, `"binaryData": {"a": "AAEC"}`, ``, "", "binaryData.a"},
		"an empty text":              {config, `"data": {"a": ""}`, ``, "", "data"},
		"a label":                    {"", `"metadata": {"labels": {"example.com/a": "1"}}`, `"metadata": {"labels": {"example.com/a": "1000m", "b": "c"}}`, "", `metadata.labels["example.com/a"]`},
		"a label of others":          {"", `"metadata": {"name": "a"}`, `"metadata": {"name": "a", "labels": {"b": "c"}}`, "", ""},
		"an empty label":             {"", `"metadata": {"labels": {"a": ""}}`, `"metadata": {}`, "", "metadata.labels"},

		"an added driftPolicy":        {nstpl, `"spec": {"templates": []}`, `"spec": {"driftPolicy": "Report"}`, "", "spec.driftPolicy"},
		"an added overlay":            {nstpl, `"spec": {"templates": []}`, `"spec": {"overlays": [{"name": "a"}]}`, "", "spec.overlays"},
		"an added scope of a quota":   {nstpl, `"spec": {"templates": [{"spec": {"hard": {"pods": "1"}}}]}`, `"spec": {"templates": [{"spec": {"hard": {"pods": "1"}, "scopes": ["Terminating"]}}]}`, "", "spec.templates[0].spec.scopes"},
		"an added protocol":           {nstpl, `"spec": {"templates": [{"ports": [{"port": 53}]}]}`, `"spec": {"templates": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}`, "", "spec.templates[0].ports[0].protocol"},
		"a narrower selector":         {nstpl, `"spec": {"namespaces": {"labelSelector": {"matchLabels": {"a": "b"}}}}`, `"spec": {"namespaces": {"labelSelector": {"matchLabels": {"a": "b", "c": "d"}}}}`, "", "spec.namespaces.labelSelector.matchLabels.c"},
		"an empty text in a template": {nstpl, `"spec": {"templates": [{"data": {"a": ""}}]}`, `"spec": {"templates": [{"data": {}}]}`, "", "spec.templates[0].data.a"},
		"a paused rollout":            {nstpl, `"spec": {"templates": []}`, `"spec": {"rollout": {"paused": true}, "revisionHistoryLimit": 10}`, "", ""},
		"a paused declared rollout":   {nstpl, `"spec": {"rollout": {"maxFailures": 1}}`, `"spec": {"rollout": {"maxFailures": 1, "paused": true}}`, "", "spec.rollout.paused"},
		"a disabled template":         {nstpl, `"spec": {}`, `"metadata": {"annotations": {"policy/namespace-template-apply": "disable"}}, "spec": {}`, "", `metadata.annotations["policy/namespace-template-apply"]`},
		"a guarded template":          {nstpl, `"spec": {}`, `"metadata": {"annotations": {"policy/namespace-template-require-permission": "true"}}, "spec": {}`, "", `metadata.annotations["policy/namespace-template-require-permission"]`},
		"a template that is enabled":  {nstpl, `"metadata": {"annotations": {"policy/namespace-template-apply": "enable"}}`, `"metadata": {"annotations": {"policy/namespace-template-apply": "enable"}}`, "", ""},
		"an added parent":             {space, ``, `"spec": {"parent": "a"}`, "", "spec.parent"},
		"a limit per creator":         {space, `"spec": {"quota": {"hard": {"pods": "1"}}}`, `"spec": {"quota": {"hard": {"pods": "1"}, "namespacesPerCreator": {"hard": 1}}}`, "", ""},
		"a limit more in a quota":     {space, `"spec": {"quota": {"hard": {"pods": "1"}}}`, `"spec": {"quota": {"hard": {"pods": "1", "cpu": "1"}, "namespacesPerCreator": {"hard": 1}}}`, "", "spec.quota.hard.cpu"},
		"more limits of a space":      {space, `"spec": {"parent": "a"}`, `"spec": {"parent": "a", "quota": {"hard": {"pods": "1"}}, "selfService": {"namePattern": "a"}}`, "", ""},

		"a removed item of a whole list": {"", `"a": [1, 2]`, `"a": [1]`, `{"f:a":{}}`, "a"},
		"an added item of a whole list":  {"", `"a": [1]`, `"a": [1, 2]`, `{"f:a":{}}`, "a"},
		"without an entry":               {"", `"a": [1]`, `"a": [1, 2]`, "", "a"},
		"a changed item of a whole list": {"", `"a": [{"b": 1}, {"b": [2]}]`, `"a": [{"b": 1}, {"b": [3], "c": 4}]`, `{"f:a":{}}`, "a[1].b[0]"},
		"an added sidecar": {
			pod, `"spec": {"containers": [{"name": "a", "image": "x"}]}`, `"spec": {"containers": [{"name": "proxy"}, {"name": "a", "image": "x", "imagePullPolicy": "Always"}]}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}`, "",
		},
		"another image": {
			pod, `"spec": {"containers": [{"name": "a", "image": "x"}]}`, `"spec": {"containers": [{"name": "a", "image": "mirror/x"}]}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}`, "spec.containers[0]",
		},
		"an added item of a set":  {"", `"metadata": {"finalizers": ["a"]}`, `"metadata": {"finalizers": ["b", "a"]}`, `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`, ""},
		"a list without an owner": {"", `"secrets": []`, `"secrets": [{"name": "a"}]`, `{"f:metadata":{}}`, ""},

		"a verb":                      {rbac, `"rules": [{"verbs": ["get"]}, {"verbs": ["get", "list"]}]`, `"rules": [{"verbs": ["get"]}, {"verbs": ["get", "*"]}]`, `{"f:rules":{}}`, "rules[1].verbs[1]"},
		"a verb more":                 {rbac, `"rules": [{"verbs": ["get"]}]`, `"rules": [{"verbs": ["get", "list"]}]`, `{"f:rules":{}}`, "rules[0].verbs"},
		"a name in a rule":            {rbac, `"rules": [{"verbs": ["get"]}]`, `"rules": [{"verbs": ["get"], "resourceNames": ["a"]}]`, `{"f:rules":{}}`, "rules[0].resourceNames"},
		"rules for none":              {rbac, `"rules": []`, `"rules": [{"verbs": ["get"]}]`, `{"f:metadata":{}}`, "rules"},
		"no rules":                    {rbac, `"rules": []`, ``, "", ""},
		"the group of a subject":      {rbac, `"subjects": [{"kind": "User", "name": "a"}]`, `"subjects": [{"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}]`, `{"f:subjects":{}}`, ""},
		"an empty group":              {rbac, `"subjects": [{"kind": "User", "name": "a", "apiGroup": "", "namespace": ""}], "roleRef": {"apiGroup": ""}`, `"subjects": [{"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io"}`, `{"f:subjects":{}}`, ""},
		"a namespace for none":        {rbac, `"subjects": [{"kind": "ServiceAccount", "name": "a", "apiGroup": "", "namespace": ""}]`, `"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]`, `{"f:subjects":{}}`, "subjects[0].namespace"},
		"the group of a rule":         {rbac, `"rules": [{"apiGroups": [""]}]`, `"rules": [{"apiGroups": ["apps"]}]`, `{"f:rules":{}}`, "rules[0].apiGroups[0]"},
		"the protocol of a port":      {policy, `"spec": {"ingress": [{"ports": [{"port": 1}]}]}`, `"spec": {"ingress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}`, `{"f:spec":{"f:ingress":{}}}`, ""},
		"a removed peer":              {policy, `"spec": {"ingress": [{"from": [{"podSelector": {}}]}]}`, `"spec": {"ingress": [{"from": []}]}`, `{"f:spec":{"f:ingress":{}}}`, "spec.ingress[0].from"},
		"an open policy":              {policy, `"spec": {"ingress": []}`, `"spec": {"ingress": [{}]}`, `{"f:spec":{"f:policyTypes":{}}}`, "spec.ingress"},
		"a rule for null":             {policy, `"spec": {"ingress": null}`, `"spec": {"ingress": [{}]}`, `{"f:spec":{"f:policyTypes":{}}}`, "spec.ingress"},
		"a selector of fewer pods":    {policy, `"spec": {"podSelector": {}}`, `"spec": {"podSelector": {"matchLabels": {"a": "b"}}}`, `{"f:spec":{"f:podSelector":{}}}`, "spec.podSelector.matchLabels"},
		"an empty value in a policy":  {policy, `"spec": {"podSelector": {"matchLabels": {"a": ""}}}`, `"spec": {"podSelector": {"matchLabels": {}}}`, `{"f:spec":{"f:podSelector":{}}}`, "spec.podSelector.matchLabels.a"},
		"a value for an empty one":    {policy, `"spec": {"podSelector": {"matchLabels": {"a": ""}}}`, `"spec": {"podSelector": {"matchLabels": {"a": "b"}}}`, `{"f:spec":{"f:podSelector":{}}}`, "spec.podSelector.matchLabels.a"},
		"a protocol that means none":  {policy, `"spec": {"ingress": [{"ports": [{"protocol": ""}]}]}`, `"spec": {"ingress": [{"ports": [{"protocol": "TCP"}]}]}`, `{"f:spec":{"f:ingress":{}}}`, ""},
		"what others add to a policy": {policy, `"spec": {"podSelector": {}}`, `"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}`, `{"f:spec":{"f:podSelector":{}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parse := func(fields string) *unstructured.Unstructured {
				var object map[string]any
				text := strings.TrimSuffix(test.of+fields, ", ")
				require.NoError(t, utiljson.Unmarshal([]byte("{"+text+"}"), &object))
				return &unstructured.Unstructured{Object: object}
			}
			var entry *metav1.ManagedFieldsEntry
			if test.owned != "" {
				entry = new(ownedBy("nstpl", test.owned, 0))
			}
			require.Equal(t, test.want, Difference(parse(test.declared), parse(test.stored), entry).String())
		})
	}
}

func TestManagerOf(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	require.Empty(t, ManagerOf(object, Field{"rules"}, "nstpl-sync"))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{
		ownedBy("nstpl-sync", `{"f:rules":{},"f:metadata":{"f:labels":{"f:team":{}}}}`, 9),
		ownedBy("kubectl-edit", `{"f:rules":{}}`, 1),
		ownedBy("former", `{"f:metadata":{"f:labels":{"f:team":{}}}}`, 1),
		ownedBy("labeler", `{"f:metadata":{"f:labels":{"f:team":{}}}}`, 2),
		ownedBy("annotator", `{"f:metadata":{"f:annotations":{}}}`, 3),
	})
	require.Equal(t, "kubectl-edit", ManagerOf(object, Field{"rules", "0", "verbs"}, "nstpl-sync"))
	require.Equal(t, "labeler", ManagerOf(object, Field{"metadata", "labels", "team"}, "nstpl-sync"))
	require.Empty(t, ManagerOf(object, Field{"spec"}, "nstpl-sync"))
}

func FuzzDifference(f *testing.F) {
	f.Add("a", int64(1), 1.0)
	f.Fuzz(func(t *testing.T, text string, whole int64, fraction float64) {
		object := func(item map[string]any) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"text": text, "list": []any{whole, item}, "none": nil},
			}}
		}
		value := object(map[string]any{text: fraction})
		if fraction == fraction && Difference(value, value, nil) != nil {
			t.Fatalf("%v differs from itself", value)
		}
		more := object(map[string]any{text: fraction, text + "x": int64(1)})
		if fraction == fraction && (Difference(value, more, nil) != nil || Difference(more, value, nil) == nil) {
			t.Fatalf("%v and %v", more, value)
		}
	})
}

func TestWithoutAdditions(t *testing.T) {
	t.Parallel()
	parse := func(kind, text string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		require.NoError(t, object.UnmarshalJSON([]byte(`{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "`+kind+`", `+text)))
		return object
	}
	const template = `"metadata": {"name": "a"}, "spec": {"deletionPolicy": "Delete", "templates": [{"kind": "Role"}]}}`
	for name, test := range map[string]struct {
		kind, declared, stored string
		hasAdditions           bool
		want                   string
	}{
		"an edit": {
			"NamespaceTemplate", template,
			`"metadata": {"name": "a"}, "spec": {"deletionPolicy": "Orphan", "templates": []}}`, false, "",
		},
		"an addition": {
			"NamespaceTemplate", template,
			`"metadata": {"name": "a", "annotations": {"b": "c", "policy/namespace-template-apply": "disable",
			"policy/namespace-template-require-permission": "true"}, "resourceVersion": "7"},
			"spec": {"deletionPolicy": "Delete", "templates": [{"kind": "Role"}], "overlays": [{"name": "b"}], "rollout": {"paused": true}}}`,
			true, `"metadata": {"name": "a", "annotations": {"b": "c"}, "resourceVersion": "7"},
			"spec": {"deletionPolicy": "Delete", "templates": [{"kind": "Role"}], "rollout": {"paused": true}}}`,
		},
		"a limit per creator": {
			"PolicySpace", `"metadata": {"name": "a"}, "spec": {"quota": {"hard": {"pods": "1"}}}}`,
			`"metadata": {"name": "a"}, "spec": {"quota": {"hard": {"pods": "2"}, "namespacesPerCreator": {"hard": 1}}}}`, false, "",
		},
		"a limit per creator and an addition": {
			"PolicySpace", `"metadata": {"name": "a"}, "spec": {"quota": {"hard": {"pods": "1"}}}}`,
			`"metadata": {"name": "a"}, "spec": {"quota": {"hard": {"pods": "2", "cpu": "1"}, "namespacesPerCreator": {"hard": 1}}}}`,
			true, `"metadata": {"name": "a"}, "spec": {"quota": {"hard": {"pods": "1"}, "namespacesPerCreator": {"hard": 1}}}}`,
		},
	} {
		declared, stored := parse(test.kind, test.declared), parse(test.kind, test.stored)
		require.Equal(t, test.hasAdditions, HasAdditions(declared, stored), name)
		if test.hasAdditions {
			require.Equal(t, parse(test.kind, test.want), WithoutAdditions(declared, stored), name)
			require.Nil(t, Difference(declared, WithoutAdditions(declared, stored), nil), name)
			require.Equal(t, parse(test.kind, test.declared), declared, name)
		}
	}
}
