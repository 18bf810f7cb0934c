package vet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewSARIF(t *testing.T) {
	got, err := json.Marshal(newSARIF(&result{
		Violations: []finding{
			{Rule: "cycle", Path: "foo corp/a.yaml", Line: 3, Object: "o", Field: "f", Message: "m", Remedy: "r"},
			{Rule: "cycle", Path: "foo corp", Message: "m"},
		},
		Warnings: []finding{{Path: "foo corp/b.yaml", Message: "w"}},
		Skipped:  []finding{{Path: "c.yaml", Line: 1, Message: "s"}},
	}))
	require.NoError(t, err)
	require.JSONEq(t, `{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [{
		"tool": {"driver": {"name": "kubectl-nstpl", "rules": [{"id": "cycle",
			"shortDescription": {"text": "a policy space is its own ancestor"},
			"help": {"text": "change the parent of one of its ancestors"}}]}},
		"results": [
			{"ruleId": "cycle", "level": "error", "message": {"text": "o: f: m (r)"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp/a.yaml"}, "region": {"startLine": 3}}}]},
			{"ruleId": "cycle", "level": "error", "message": {"text": "m"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp"}}}]},
			{"ruleId": "warning", "level": "warning", "message": {"text": "w"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "foo%20corp/b.yaml"}}}]},
			{"ruleId": "not-checked", "level": "note", "message": {"text": "s"}, "locations": [
				{"physicalLocation": {"artifactLocation": {"uri": "c.yaml"}, "region": {"startLine": 1}}}]}
		]}]}`, string(got))
}
