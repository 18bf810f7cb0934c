{{- define "gvDetails" -}}
The API group and version is `{{ .GroupVersionString }}`. Its kinds are:

{{ range .SortedKinds }}- {{ $.TypeForKind . | markdownRenderTypeLink }}
{{ end }}
{{- range .SortedTypes }}{{ if .GVK }}
## {{ template "type" . }}
{{- end }}{{ end }}
## Types of fields
{{ range .SortedTypes }}{{ if and (not .GVK) (markdownShouldRenderType .) }}
### {{ template "type" . }}
{{- end }}{{ end }}
{{- end -}}
