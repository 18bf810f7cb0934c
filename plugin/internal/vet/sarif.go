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
	Tool struct {
		Driver sarifDriver `json:"driver"`
	} `json:"tool"`
	Results []sarifResult `json:"results"`
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
	Physical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	} `json:"physicalLocation"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

// newSARIF returns the result of a check as one run. The rule ID of all warnings is "warning", and that of what was not
// checked is "not-checked".
func newSARIF(r *result) sarif {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "kubectl-nstpl", Rules: []sarifRule{}}
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
	var location sarifLocation
	location.Physical.Artifact.URI = (&url.URL{Path: f.Path}).EscapedPath()
	if f.Line > 0 {
		location.Physical.Region = &sarifRegion{f.Line}
	}
	return sarifResult{
		RuleID: rule, Level: level, Message: sarifMessage{f.text()}, Locations: []sarifLocation{location},
	}
}
