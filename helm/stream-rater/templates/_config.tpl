{{/* The files of the ConfigMap; pods restart, one by one, when they change. */}}

{{- define "stream-rater.config" -}}
settings.toml: |
  {{- include "stream-rater.settings" . | nindent 2 }}
{{- with .Values.ladders }}
ladders.toml: |
  {{- trim . | nindent 2 }}
{{- end }}
{{- end }}
