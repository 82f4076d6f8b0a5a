{{/* A container of the job that starts seasons: dict root, name, words (of the command). */}}
{{- define "stream-rater.seasonContainer" }}
{{- $values := .root.Values -}}
{{- $it := dict "root" .root "component" "seasons" -}}
name: {{ .name }}
image: {{ include "stream-rater.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command: [stream-rater]
args: {{ concat .words (list "--settings" "/etc/stream-rater/config/settings.toml") | toJson }}
env:
  {{- if include "stream-rater.kafkaPassword" .root }}
  - {name: STREAM_RATER_KAFKA_SASL_USERNAME, value: {{ include "stream-rater.kafkaUsername" $it | quote }}}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml $values.seasons.resources | nindent 2 }}
securityContext:
  {{- include "stream-rater.containerSecurity" .root | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/stream-rater/config, readOnly: true}
  {{- if include "stream-rater.secretsOf" $it | trim }}
  - {name: access, mountPath: {{ include "stream-rater.secretsFolder" .root }}, readOnly: true}
  {{- end }}
  - {name: tmp, mountPath: /tmp}
{{- end }}
