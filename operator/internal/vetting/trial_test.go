package vetting

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The operator tries objects that depend on others, which do not exist in the trial namespace, and no more objects than
// the API server can bear.
func testTrials(t *testing.T, s suite) {
	t.Helper()
	request, err := s.ask(t, "admin", nil, object(t, `templates:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: runner}}
- {apiVersion: v1, kind: Pod, metadata: {name: runs}, spec: {serviceAccountName: runner, containers: [{name: a, image: b}]}}
- {apiVersion: v1, kind: Service, metadata: {name: fixed}, spec: {type: NodePort, clusterIP: 10.96.0.77, ports: [{port: 80, nodePort: 30123}]}}
`+roleOf("reader", holdsPods)+bindingTo("Role", "reader")))
	require.NoError(t, err)
	require.Equal(t,
		[]string{"spec.templates[2]: service/fixed: spec.ports[0].nodePort is already allocated, so only " +
			"one namespace can have the object"}, request.Warnings)

	large := "templates:\n"
	for i := range 100 {
		large += fmt.Sprintf("- {apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n", i)
	}
	large += "overlays:\n"
	for i := range 20 {
		large += fmt.Sprintf("- {name: o%[1]d, namespaces: {labelSelector: {}}, labels: {o: o%[1]d}}\n", i)
	}
	begin := time.Now()
	request, err = s.ask(t, "admin", nil, object(t, large))
	require.NoError(t, err)
	require.Less(t, time.Since(begin), latestTrial+maxAnswerTime)
	require.Regexp(t, `^\d+ of 2100 objects were not tried on the API server`, strings.Join(request.Warnings, "\n"))
}

// Objects that an edit changes are tried before the others.
func TestTrialsBeginWithChanges(t *testing.T) {
	quota := func(name, more string) string {
		return `{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "` + name + `"` + more + `}}`
	}
	before := templateWith(nil, quota("a", ""), quota("b", ""), quota("c", ""))
	after := templateWith(nil, quota("a", ""), quota("b", `, "labels": {"a": "b"}`), quota("c", ""), quota("d", ""))
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}
	v := &review{edit: edit{old: before, updated: after}}
	candidates := v.candidates([]resolvedKind{{kind: kind}}, variantsOf(t.Context(), after))
	var names []string
	for _, c := range candidates {
		names = append(names, c.GetName()+" at "+c.path)
	}
	require.Equal(t, []string{
		"b at spec.templates[1]", "d at spec.templates[3]", "a at spec.templates[0]", "c at spec.templates[2]",
	}, names)
	require.Len(t, trialsOf(slices.Repeat(candidates, maxTrials)), maxTrials)
}
