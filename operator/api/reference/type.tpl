{{- define "type" -}}
{{ .Name }}

{{ .Doc }}
{{ if .IsAlias }}
_Underlying type:_ {{ markdownRenderTypeLink .UnderlyingType }}
{{ end -}}
{{ if .Validation }}
_Validation:_
{{ range .Validation }}
- {{ . }}
{{- end }}
{{ end -}}
{{ if .References }}
_Appears in:_ {{ range $i, $reference := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $reference }}{{ end }}
{{ end -}}
{{ if .Members }}
| Field | Description | Default | Validation |
| --- | --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` _string_ | `{{ .GVK.Kind }}` | | |
{{ end -}}
{{ range .Members -}}
{{ if not (or (eq .Name "apiVersion") (eq .Name "kind") ) -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range .Validation }}{{ markdownRenderFieldDoc . }} <br />{{ end }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{ if .EnumValues }}
| Value | Description |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{- end -}}
