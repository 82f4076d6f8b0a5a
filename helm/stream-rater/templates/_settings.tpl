{{/* The service's settings, as the TOML file that `run --settings` reads. No secret is in it. */}}

{{/* Where pods find passwords, tokens and certificates as files. */}}
{{- define "stream-rater.secretsFolder" -}}/etc/stream-rater/access{{- end }}

{{/* Not empty if pods log in to Kafka with user and password; tokens need neither. */}}
{{- define "stream-rater.kafkaPassword" -}}
{{- with .Values.kafka }}
{{- if and (hasPrefix "sasl" .securityProtocol) (ne .sasl.mechanism "OAUTHBEARER") }}yes{{ end }}
{{- end }}
{{- end }}

{{- define "stream-rater.settings" -}}
{{- $access := include "stream-rater.secretsFolder" . -}}
http = "0.0.0.0:{{ include "stream-rater.port" . }}"
{{- if .Values.ladders }}
ladders = "/etc/stream-rater/config/ladders.toml"
{{- end }}
{{- with .Values.kafka }}
kafka = {{ toJson .bootstrapServers }}
topic_prefix = {{ toJson .topicPrefix }}
kafka_security_protocol = {{ toJson .securityProtocol }}
{{- if hasPrefix "sasl" .securityProtocol }}
kafka_sasl_mechanism = {{ toJson .sasl.mechanism }}
{{- end }}
{{- if include "stream-rater.kafkaPassword" $ }}
kafka_sasl_password_file = "{{ $access }}/kafka-password"
{{- end }}
{{- with .sasl.token }}
kafka_token = {{ toJson . }}
{{- end }}
{{- if .tls.existingSecret }}
{{- range $setting, $key := dict "ca" "caKey" "certificate" "certificateKey" "key" "keyKey" }}
{{- if get $.Values.kafka.tls $key }}
kafka_ssl_{{ $setting }} = "{{ $access }}/kafka-{{ $setting }}.pem"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.redis }}
redis = {{ toJson .url }}
redis_cluster = {{ .cluster }}
{{- with .username }}
redis_username = {{ toJson . }}
{{- end }}
{{- if .existingSecret }}
redis_password_file = "{{ $access }}/redis-password"
{{- end }}
{{- with .sentinel.username }}
redis_sentinel_username = {{ toJson . }}
{{- end }}
{{- if .sentinel.existingSecret }}
redis_sentinel_password_file = "{{ $access }}/redis-sentinel-password"
{{- end }}
{{- if .tls.existingSecret }}
{{- range $setting, $key := dict "ca" "caKey" "certificate" "certificateKey" "key" "keyKey" }}
{{- if get $.Values.redis.tls $key }}
redis_{{ $setting }} = "{{ $access }}/redis-{{ $setting }}.pem"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ snakecase $name }} = {{ toJson $value }}
{{- end }}
{{- with .Values.kafka.options }}

[kafka_options]
{{- range $name, $value := . }}
{{ toJson $name }} = {{ kindIs "string" $value | ternary $value (toJson $value) | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* Secrets' keys as files: the sources of one projected volume; nothing where there are none.
dict root, component. */}}
{{- define "stream-rater.secretsOf" -}}
{{- $v := .root.Values -}}
{{- $own := eq .component "serve" | ternary $v.serve (dict "kafka" dict "redis" dict "token" dict "writeToken" dict) -}}
{{- if include "stream-rater.kafkaPassword" .root }}
- secret:
    name: {{ $own.kafka.existingSecret | default $v.kafka.sasl.existingSecret | toYaml }}
    items: [{key: {{ toYaml $v.kafka.sasl.passwordKey }}, path: kafka-password}]
{{- end }}
{{- with $own.redis.existingSecret | default $v.redis.existingSecret }}
- secret:
    name: {{ toYaml . }}
    items: [{key: {{ toYaml $v.redis.passwordKey }}, path: redis-password}]
{{- end }}
{{- with $v.redis.sentinel.existingSecret }}
- secret:
    name: {{ toYaml . }}
    items: [{key: {{ toYaml $v.redis.sentinel.passwordKey }}, path: redis-sentinel-password}]
{{- end }}
{{- with $own.token.existingSecret }}
- secret:
    name: {{ toYaml . }}
    items: [{key: {{ toYaml $v.serve.token.key }}, path: serve-token}]
{{- end }}
{{- with $own.writeToken.existingSecret }}
- secret:
    name: {{ toYaml . }}
    items: [{key: {{ toYaml $v.serve.writeToken.key }}, path: serve-write-token}]
{{- end }}
{{- range $server := list "kafka" "redis" }}
{{- with (get $v $server).tls }}
{{- if .existingSecret }}
- secret:
    name: {{ toYaml .existingSecret }}
    items:
      {{- range $setting, $key := dict "ca" .caKey "certificate" .certificateKey "key" .keyKey }}
      {{- if $key }}
      - {key: {{ toYaml $key }}, path: {{ $server }}-{{ $setting }}.pem}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
