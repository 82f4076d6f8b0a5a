{{/* A role's StatefulSet: dict root, component. The pod's name is the worker's instance id. The pods
of `serve` are made here, too. */}}

{{- define "stream-rater.statefulset" -}}
{{- $own := get .root.Values .component -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "stream-rater.componentMetadata" . | nindent 2 }}
spec:
  serviceName: {{ include "stream-rater.fullname" .root }}
  {{- if not .root.Values.keda.enabled }}
  replicas: {{ int $own.replicas }}
  {{- end }}
  podManagementPolicy: Parallel
  minReadySeconds: 5 # by then it knows how far behind it is
  updateStrategy:
    type: RollingUpdate
  selector:
    matchLabels:
      {{- include "stream-rater.componentLabels" . | nindent 6 }}
  template:
    {{- include "stream-rater.podTemplate" . | nindent 4 }}
{{- end }}

{{/* The pod of a role, or of `serve`. */}}
{{- define "stream-rater.podTemplate" -}}
metadata:
  labels:
    {{- include "stream-rater.componentLabels" . | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "stream-rater.config" .root | sha256sum }}
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "stream-rater.pod" . | nindent 2 }}
{{- end }}

{{- define "stream-rater.pod" -}}
{{- $values := .root.Values -}}
{{ include "stream-rater.podBasics" . }}
{{- with $values.topologySpread.keys }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ toYaml . }}
    whenUnsatisfiable: {{ $values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "stream-rater.componentLabels" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- with include "stream-rater.podWishes" . | trim }}
{{ . }}
{{- end }}
containers:
  - {{ include "stream-rater.container" . | nindent 4 | trim }}
  {{- with $values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  {{- include "stream-rater.volumes" . | nindent 2 }}
{{- end }}

{{/* Where a pod may run. */}}
{{- define "stream-rater.podWishes" -}}
{{- range $wish := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $.root.Values $wish }}
{{ $wish }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the pods of all components have. */}}
{{- define "stream-rater.podBasics" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "stream-rater.serviceAccountName" .root | toYaml }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
{{- with $values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "stream-rater.podSecurity" .root | nindent 2 }}
{{- end }}

{{- define "stream-rater.volumes" -}}
- name: config
  configMap:
    name: {{ include "stream-rater.fullname" .root }}
{{- with include "stream-rater.secretsOf" . | trim }}
- name: access
  projected:
    defaultMode: 0440
    sources:
      {{- nindent 6 . }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- if eq .component "serve" }}
{{- with .root.Values.serve.index }}
- name: index
  {{- if .existingClaim }}
  persistentVolumeClaim: {claimName: {{ toYaml .existingClaim }}}
  {{- else if .sizeLimit }}
  emptyDir: {sizeLimit: {{ toYaml .sizeLimit }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "stream-rater.command" -}}
{{ eq .component "serve" | ternary "serve" (printf "run, --role, %s" .component) }}
{{- end }}

{{- define "stream-rater.container" }}
{{- $values := .root.Values -}}
name: stream-rater
command: [{{ if $values.tracing.endpoint }}opentelemetry-instrument, {{ end }}stream-rater]
args: [{{ include "stream-rater.command" . }}, --settings, /etc/stream-rater/config/settings.toml]
env:
  {{- if eq .component "serve" }}
  {{- include "stream-rater.serveEnv" .root | nindent 2 }}
  {{- else }}
  - name: STREAM_RATER_INSTANCE_ID
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- end }}
  {{- with $values.tracing.endpoint }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
  - {name: OTEL_EXPORTER_OTLP_PROTOCOL, value: http/protobuf}
  - {name: OTEL_EXPORTER_OTLP_TIMEOUT, value: "2"} # s, for a worker's end may wait for it
  - {name: OTEL_LOGS_EXPORTER, value: none}
  - {name: OTEL_METRICS_EXPORTER, value: none}
  - {name: OTEL_SERVICE_NAME, value: {{ include "stream-rater.fullname" $.root }}-{{ $.component }}}
  - {name: OTEL_TRACES_EXPORTER, value: otlp}
  {{- end }}
  {{- with include "stream-rater.commonEnv" . | trim }}
  {{- nindent 2 . }}
  {{- end }}
ports:
  - name: http
    containerPort: {{ include "stream-rater.port" .root }}
  {{- if eq .component "serve" }}
  - name: probes # which no client of the API can keep busy
    containerPort: {{ include "stream-rater.probesPort" .root }}
  {{- end }}
{{- $probes := eq .component "serve" | ternary "probes" "http" }}
startupProbe:
  httpGet: {path: /healthz, port: {{ $probes }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ div (int $values.startupSeconds) 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: {{ $probes }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: {{ $probes }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 3
resources:
  {{- toYaml (get $values .component).resources | nindent 2 }}
{{ include "stream-rater.containerBasics" . }}
{{- end }}

{{/* What the containers of all components have: dict root, component. */}}
{{- define "stream-rater.containerBasics" -}}
image: {{ include "stream-rater.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "stream-rater.containerSecurity" .root | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/stream-rater/config, readOnly: true}
  {{- if include "stream-rater.secretsOf" . | trim }}
  - {name: access, mountPath: {{ include "stream-rater.secretsFolder" .root }}, readOnly: true}
  {{- end }}
  - {name: tmp, mountPath: /tmp}
  {{- if eq .component "serve" }}
  - {name: index, mountPath: /var/lib/stream-rater}
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* And their variables. */}}
{{- define "stream-rater.commonEnv" -}}
{{- if include "stream-rater.kafkaPassword" .root }}
- name: STREAM_RATER_KAFKA_SASL_USERNAME # a variable, for KEDA reads it here
  value: {{ include "stream-rater.kafkaUsername" . | quote }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
