package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// value is a value of the chart, of which values.yaml, values.schema.json and the README are made.
type value struct {
	// path is the keys that lead to the value, with dots between them.
	path     string
	fallback any
	// schema is the JSON schema of the value, without its description.
	schema      map[string]any
	description string
}

func typed(name string) map[string]any { return map[string]any{"type": name} }

func listOf(name string) map[string]any { return map[string]any{"type": "array", "items": typed(name)} }

// descriptions has a sentence about each component. The comments of the kustomizations address users of kustomize.
var descriptions = map[string]string{
	"cert-manager": "cert-manager issues the webhooks' certificate. It must be installed.",
	"grafana":      "A ConfigMap with a dashboard, which the sidecar of Grafana's chart finds.",
	"expiry":       "The operator may delete namespaces that have expired, if their users have consented.",
	"network-policy": "Limits where the operator connects to: ports 443 and 6443, where API servers usually listen. " +
		"Its NetworkPolicy for incoming connections is always installed.",
	"openreports": "The operator writes a Report about each namespace with findings. The CustomResourceDefinition of " +
		"openreports.io must be installed.",
	"prometheus": "ServiceMonitors and alerts. The Prometheus operator must be installed.",
	"roles":      "ClusterRoles that you can bind to the users of nstpl.",
	"security-context-constraints": "OpenShift's usual constraints. Enable them in an upgrade, because Helm needs the " +
		"CustomResourceDefinitions first. From then on, one of them must admit each pod. Helm does not delete them again.",
	"self-service-only": "Users may create namespaces only in policyspaces with spec.selfService.",
	"sync": "nstpl-sync, by which the cluster follows trees of policies in Git. It has the permissions of a cluster " +
		"administrator.",
}

// name returns the key of the component's value: cert-manager is certManager.
func (c component) name() string {
	words := strings.Split(c.folder, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// value returns the expression for the component's value, which is also the condition of its objects.
func (c component) value() string { return ".Values.components." + c.name() }

func (m *manifests) componentValues() []value {
	var all []value
	for _, c := range m.components {
		all = append(all, value{"components." + c.name(), false, typed("boolean"), descriptions[c.folder]})
	}
	return all
}

// valuesFile returns values.yaml: the defaults, each with its description as a comment.
func valuesFile(values []value) ([]byte, error) {
	var file strings.Builder
	var section []string
	for i, v := range values {
		keys := strings.Split(v.path, ".")
		parents := keys[:len(keys)-1]
		if i > 0 && (len(parents) == 0 || len(section) == 0 || parents[0] != section[0]) {
			file.WriteString("\n")
		}
		for depth, key := range parents {
			if depth >= len(section) || section[depth] != key {
				section = section[:min(depth, len(section))]
				fmt.Fprintf(&file, "%s%s:\n", strings.Repeat("  ", depth), key)
				section = append(section, key)
			}
		}
		section = parents
		margin := strings.Repeat("  ", len(parents))
		for _, line := range wrapped(v.description, 100-len(margin)) {
			file.WriteString(margin + "# " + line + "\n")
		}
		content, err := toYAML(map[string]any{keys[len(keys)-1]: v.fallback})
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(content) {
			file.WriteString(margin + line)
		}
	}
	return []byte(file.String()), nil
}

// wrapped returns the lines of a text, of at most width bytes where its words allow that.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// schemaFile returns values.schema.json, by which Helm rejects values that do not exist or have another type.
func schemaFile(values []value) ([]byte, error) {
	root := closedObject(map[string]any{
		"global": map[string]any{"type": "object", "description": "Helm passes it to charts that others depend on."},
	})
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	for _, v := range values {
		keys := strings.Split(v.path, ".")
		properties := child(root, "properties")
		for _, key := range keys[:len(keys)-1] {
			if properties[key] == nil {
				properties[key] = closedObject(map[string]any{})
			}
			properties = child(child(properties, key), "properties")
		}
		schema := map[string]any{"description": v.description}
		maps.Copy(schema, v.schema)
		properties[keys[len(keys)-1]] = schema
	}
	content, err := json.MarshalIndent(root, "", "  ")
	return append(content, '\n'), err
}

// valuesTable returns the values as a table of Markdown.
func valuesTable(values []value) (string, error) {
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	for _, v := range values {
		content, err := json.Marshal(v.fallback)
		if err != nil {
			return "", err
		}
		fallback := "`" + string(content) + "`"
		if len(fallback) > 40 {
			fallback = "see `values.yaml`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", v.path, fallback, v.description)
	}
	return table.String(), nil
}

// closedObject returns the schema of an object that has no other properties.
func closedObject(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}
