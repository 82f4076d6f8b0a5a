{{/* What sets the pods of `serve` apart from workers. */}}

{{/* Where it listens, and what only it may know: the settings file is also the workers'. */}}
{{- define "stream-rater.serveEnv" -}}
{{- $own := .Values.serve -}}
- {name: STREAM_RATER_SERVE, value: "0.0.0.0:{{ include "stream-rater.port" . }}"}
- {name: STREAM_RATER_SERVE_PROBES, value: "0.0.0.0:{{ include "stream-rater.probesPort" . }}"}
- {name: STREAM_RATER_SERVE_CONNECTIONS, value: {{ int $own.connections | quote }}}
- {name: STREAM_RATER_SERVE_CORS, value: {{ quote $own.cors }}}
- {name: STREAM_RATER_SERVE_HISTORY, value: {{ int $own.history | quote }}}
- {name: STREAM_RATER_SERVE_LAG, value: {{ int $own.lag | quote }}}
- {name: STREAM_RATER_INDEX, value: /var/lib/stream-rater/index}
- {name: STREAM_RATER_SERVE_RATE, value: {{ quote $own.rate }}}
{{- if $own.token.existingSecret }}
- {name: STREAM_RATER_SERVE_TOKEN_FILE, value: {{ include "stream-rater.secretsFolder" . }}/serve-token}
{{- end }}
{{- if $own.writeToken.existingSecret }}
- {name: STREAM_RATER_SERVE_WRITE_TOKEN_FILE, value: {{ include "stream-rater.secretsFolder" . }}/serve-write-token}
{{- end }}
{{- with $own.redis.username }}
- {name: STREAM_RATER_REDIS_USERNAME, value: {{ quote . }}}
{{- end }}
{{- end }}

{{/* Where its probes and metrics are, which clients of the API do not reach. */}}
{{- define "stream-rater.probesPort" -}}
9110
{{- end }}

{{/* The SASL user of a component: dict root, component. */}}
{{- define "stream-rater.kafkaUsername" -}}
{{- $own := eq .component "serve" | ternary .root.Values.serve.kafka.username "" -}}
{{ $own | default .root.Values.kafka.sasl.username }}
{{- end }}
