{{- define "gvList" -}}
# Kinds

Look up every kind and field of nstpl. `kubectl explain KIND` shows the same text.
{{ range . }}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
