{{- /*
The image of a workload. If its values have neither a tag nor a digest, it is the image of this release.
*/ -}}
{{- define "nstpl.image" -}}
{{- .image.repository -}}
{{- if not (or .image.tag .image.digest) }}{{ .released }}{{ end -}}
{{- with .image.tag }}:{{ . }}{{ end -}}
{{- with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}
