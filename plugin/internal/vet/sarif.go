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
	ID    string       `json:"id"`
	Short sarifMessage `json:"shortDescription"`
	Help  sarifMessage `json:"help"`
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

// newSARIF returns the result of a check as one run. The rule ID of all warnings is "warning", and that of what was not
// checked is "not-checked".
func newSARIF(r *result) sarif {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "kubectl-nstpl", Rules: []sarifRule{}}}, Results: []sarifResult{}}
	for _, rule := range rules() {
		if slices.ContainsFunc(r.Violations, func(v finding) bool { return v.Rule == rule.id }) {
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules,
				sarifRule{rule.id, sarifMessage{rule.meaning}, sarifMessage{rule.remedy}})
		}
	}
	for _, violation := range r.Violations {
		run.Results = append(run.Results, newSARIFResult(violation, violation.Rule, "error"))
	}
	for _, warning := range r.Warnings {
		run.Results = append(run.Results, newSARIFResult(warning, "warning", "warning"))
	}
	for _, skipped := range r.Skipped {
		run.Results = append(run.Results, newSARIFResult(skipped, "not-checked", "note"))
	}
	return sarif{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func newSARIFResult(f finding, rule, level string) sarifResult {
	location := sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: f.Path}).EscapedPath()}}
	if f.Line > 0 {
		location.Region = &sarifRegion{f.Line}
	}
	return sarifResult{
		RuleID: rule, Level: level, Message: sarifMessage{f.text()}, Locations: []sarifLocation{{location}},
	}
}
