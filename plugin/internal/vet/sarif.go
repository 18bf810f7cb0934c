package vet

import (
	"net/url"
	"slices"
)

const sarifFormat = "sarif"

// sarif is a document in the Static Analysis Results Interchange Format, version 2.1.0, with the fields that are used
// here.
type sarif struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool    sarifTool     `json:"tool"`
	Results []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name  string      `json:"name"`
	Rules []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID string `json:"id"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	Level     string          `json:"level"`
	Message   sarifMessage    `json:"message"`
	Locations []sarifLocation `json:"locations"`
}

type sarifMessage struct {
	Text string `json:"text"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   *sarifRegion  `json:"region,omitempty"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

// newSARIF returns the result of a check as one run. The ID of a rule is its name. The rule ID of all warnings is
// "warning".
func newSARIF(checked treeResult) sarif {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "kubectl-nstpl", Rules: []sarifRule{}}}, Results: []sarifResult{}}
	result := func(rule, level, text, path string, line int) sarifResult {
		location := sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: path}).EscapedPath()}}
		if line > 0 {
			location.Region = &sarifRegion{line}
		}
		return sarifResult{
			RuleID: rule, Level: level, Message: sarifMessage{text}, Locations: []sarifLocation{{location}},
		}
	}
	for _, violation := range checked.Violations {
		if rule := (sarifRule{violation.Rule}); !slices.Contains(run.Tool.Driver.Rules, rule) {
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
		}
		run.Results = append(run.Results,
			result(violation.Rule, "error", violation.Message+": "+violation.Remedy, violation.Path, violation.Line))
	}
	for _, warning := range checked.Warnings {
		run.Results = append(run.Results, result("warning", "warning", warning.Message, warning.Path, warning.Line))
	}
	return sarif{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}
