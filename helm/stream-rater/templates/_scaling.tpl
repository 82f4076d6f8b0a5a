{{/* A role's ScaledObject: dict root, component. No more pods than can have a share. */}}

{{- define "stream-rater.scaledObject" -}}
{{- $values := .root.Values -}}
{{- $shares := dict "estimator" $values.settings.partitions "updater" $values.settings.shards -}}
{{- $of := dict "all" (list "estimator" "updater") -}}
{{- $roles := get $of .component | default (list .component) -}}
{{- $most := 1 -}}
{{- range $roles }}{{ $most = max $most (int (get $shares .)) }}{{ end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "stream-rater.componentMetadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: StatefulSet
    name: {{ include "stream-rater.fullname" .root }}-{{ .component }}
  minReplicaCount: {{ int (get $values .component).replicas }}
  maxReplicaCount: {{ max (int $most) (int (get $values .component).replicas) }}
  pollingInterval: {{ int $values.keda.pollingInterval }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: {{ int $values.keda.scaleDownSeconds }}
          policies:
            - {type: Pods, value: 1, periodSeconds: 60}
  triggers:
    {{- range $roles }}
    - {{ include "stream-rater.trigger" (dict "root" $.root "role" .) | nindent 6 | trim }}
    {{- end }}
{{- end }}

{{/* Lag of a role's consumer group: dict root, role. */}}
{{- define "stream-rater.trigger" }}
{{- $kafka := .root.Values.kafka -}}
{{- $topics := dict "estimator" "round-completed" "updater" "performance-estimated" -}}
{{- $mechanisms := dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512" -}}
type: kafka
metadata:
  bootstrapServers: {{ $kafka.bootstrapServers | quote }}
  consumerGroup: {{ printf "%sstream-rater-%ss" $kafka.topicPrefix .role | quote }}
  topic: {{ printf "%s%s" $kafka.topicPrefix (get $topics .role) | quote }}
  lagThreshold: {{ int .root.Values.keda.lagThreshold | quote }}
  offsetResetPolicy: earliest
  excludePersistentLag: "true" # a marker, or a shard that waits for an operator
  limitToPartitionsWithLag: "true" # more pods do not help a hot ladder
  {{- with include "stream-rater.kafkaMechanism" .root }}
  sasl: {{ get $mechanisms . }}
  {{- end }}
  {{- if hasSuffix "ssl" (include "stream-rater.kafkaProtocol" .root) }}
  tls: enable
  {{- end }}
{{- if include "stream-rater.kedaSecrets" .root | trim }}
authenticationRef:
  name: {{ include "stream-rater.fullname" .root }}-kafka
{{- end }}
{{- end }}

{{/* What KEDA needs of the secrets to ask Kafka; nothing where Kafka asks for none. */}}
{{- define "stream-rater.kedaSecrets" -}}
{{- $kafka := .Values.kafka -}}
{{- if include "stream-rater.kafkaMechanism" . }}
- {parameter: password, name: {{ toYaml $kafka.sasl.existingSecret }}, key: {{ toYaml $kafka.sasl.passwordKey }}}
{{- end }}
{{- range include "stream-rater.tlsFiles" (dict "root" . "server" "kafka") | fromJsonArray }}
- {parameter: {{ eq .is "certificate" | ternary "cert" .is }}, name: {{ toYaml .secret }}, key: {{ toYaml .key }}}
{{- end }}
{{- end }}
