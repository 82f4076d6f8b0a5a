{{/* The service's settings, as the TOML file that `run --settings` reads. No secret is in it. */}}

{{/* Where pods find passwords, tokens and certificates as files. */}}
{{- define "stream-rater.secretsFolder" -}}/etc/stream-rater/access{{- end }}

{{/* The security protocol in small letters, as our settings have it; Kafka's own have capitals. */}}
{{- define "stream-rater.kafkaProtocol" -}}
{{ lower .Values.kafka.securityProtocol }}
{{- end }}

{{/* The SASL mechanism, as Kafka writes it; empty without SASL. */}}
{{- define "stream-rater.kafkaMechanism" -}}
{{- if hasPrefix "sasl" (include "stream-rater.kafkaProtocol" .) }}{{ upper .Values.kafka.sasl.mechanism }}{{ end }}
{{- end }}

{{/* Not empty if pods log in to Kafka with user and password; tokens need neither. */}}
{{- define "stream-rater.kafkaPassword" -}}
{{- if not (has (include "stream-rater.kafkaMechanism" .) (list "" "OAUTHBEARER")) }}yes{{ end }}
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
kafka_security_protocol = {{ include "stream-rater.kafkaProtocol" $ | toJson }}
{{- with include "stream-rater.kafkaMechanism" $ }}
kafka_sasl_mechanism = {{ toJson . }}
{{- end }}
{{- if include "stream-rater.kafkaPassword" $ }}
kafka_sasl_password_file = "{{ $access }}/kafka-password"
{{- end }}
{{- with .sasl.token }}
kafka_token = {{ toJson . }}
{{- end }}
{{- range include "stream-rater.tlsFiles" (dict "root" $ "server" "kafka") | fromJsonArray }}
kafka_ssl_{{ .is }} = "{{ $access }}/kafka-{{ .is }}.pem"
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
{{- range include "stream-rater.tlsFiles" (dict "root" $ "server" "redis") | fromJsonArray }}
redis_{{ .is }} = "{{ $access }}/redis-{{ .is }}.pem"
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

{{/* The files for TLS to a server, as JSON, each with its Secret and key: dict root, server. */}}
{{- define "stream-rater.tlsFiles" -}}
{{- with (get .root.Values .server).tls -}}
{{- $own := .certificateSecret | default .existingSecret -}}
{{- $found := list -}}
{{- range list (list "ca" .existingSecret .caKey) (list "certificate" $own .certificateKey) (list "key" $own .keyKey) -}}
{{- if and (index . 1) (index . 2) -}}
{{- $found = append $found (dict "is" (index . 0) "secret" (index . 1) "key" (index . 2)) -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
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
{{- range include "stream-rater.tlsFiles" (dict "root" $.root "server" $server) | fromJsonArray }}
- secret:
    name: {{ toYaml .secret }}
    items: [{key: {{ toYaml .key }}, path: {{ $server }}-{{ .is }}.pem}]
{{- end }}
{{- end }}
{{- end }}
