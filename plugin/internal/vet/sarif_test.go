package vet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func TestNewSARIF(t *testing.T) {
	got, err := json.Marshal(newSARIF(treeResult{
		Violations: []hierarchy.Violation{
			{Rule: "unique-names", Path: "foo corp/a.yaml", Line: 3, Message: "m", Remedy: "r"},
			{Rule: "unique-names", Path: "foo corp", Message: "m", Remedy: "r"},
		},
		Warnings: []hierarchy.Warning{{Path: "foo corp/b.yaml", Message: "w"}},
	}))
	require.NoError(t, err)
	require.JSONEq(t, `{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [{
		"tool": {"driver": {"name": "kubectl-nstpl", "rules": [{"id": "unique-names"}]}},
		"results": [
			{"ruleId": "unique-names", "level": "error", "message": {"text": "m: r"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp/a.yaml"}, "region": {"startLine": 3}}}]},
			{"ruleId": "unique-names", "level": "error", "message": {"text": "m: r"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp"}}}]},
			{"ruleId": "warning", "level": "warning", "message": {"text": "w"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp/b.yaml"}}}]}
		]}]}`, string(got))
}
