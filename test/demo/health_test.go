package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// The health checks for Argo CD wait while the operator still works on an object, and report what a person must do.
// They run in the interpreter that Argo CD has.
func TestArgoCDHealthChecks(t *testing.T) {
	t.Parallel()
	var settings struct {
		Data map[string]string `json:"data"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(
		yamlBlock(t, filepath.Join("..", "..", "docs", "argocd.md"), "in argocd-cm")), &settings))
	const (
		accepted    = `{type: Accepted, status: "True", message: accepted}, `
		notAccepted = `{type: Accepted, status: "False", message: "the field a is unknown"}, `
		ready       = `{type: Ready, status: "True", message: "2 of 2 namespaces"}`
		notReady    = `{type: Ready, status: "False", message: wait}`
		stalled     = `, {type: Stalled, status: "True", message: wait}`
	)
	template, space := "NamespaceTemplate", "PolicySpace"
	for name, test := range map[string]struct {
		kind, conditions string
		observed         int
		want             string
	}{
		"a template without a status":         {template, "", 2, "Progressing waiting for the operator"},
		"a template that was changed":         {template, accepted + ready, 1, "Progressing waiting for the operator"},
		"a template that is accepted":         {template, accepted + ready, 2, "Healthy 2 of 2 namespaces"},
		"a template that fails in namespaces": {template, accepted + notReady + stalled, 2, "Healthy wait"},
		"a template that is not accepted":     {template, notAccepted + notReady + stalled, 2, "Degraded wait"},
		"a policy space without a status":     {space, "", 2, "Progressing waiting for the operator"},
		"a policy space that is ready":        {space, ready, 2, "Healthy 2 of 2 namespaces"},
		"a policy space without its parent":   {space, notReady, 2, "Progressing wait"},
		"a policy space that is stalled":      {space, notReady + stalled, 2, "Degraded wait"},
	} {
		t.Run(name, func(t *testing.T) {
			script := settings.Data["resource.customizations.health.policy.nstpl.dev_"+test.kind]
			require.NotEmpty(t, script)
			require.Equal(t, test.want, health(t, script, test.conditions, test.observed))
		})
	}
}

// health runs a health check for an object of generation 2, whose conditions are those of the observed generation. It
// returns the status and the message.
func health(t *testing.T, script, conditions string, observed int) string {
	t.Helper()
	object := "{metadata: {generation: 2}}"
	if conditions != "" {
		object = fmt.Sprintf("{metadata: {generation: 2}, status: {observedGeneration: %d, conditions: [%s]}}",
			observed,
			conditions)
	}
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(object), &fields))
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, fields))
	require.NoError(t, state.DoString(script))
	result, ok := state.Get(-1).(*lua.LTable)
	require.True(t, ok)
	return result.RawGetString("status").String() + " " + result.RawGetString("message").String()
}

// luaValue returns a value of JSON as a value of Lua.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, inside := range value {
			table.RawSetString(key, luaValue(state, inside))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, inside := range value {
			table.Append(luaValue(state, inside))
		}
		return table
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	}
	return lua.LNil
}
