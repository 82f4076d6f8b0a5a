{{/* Names, labels and the image: what more than one resource needs. */}}

{{- define "stream-rater.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 characters: pods add a role, an ordinal and a revision, in 63 in all. The Service has
this name, too, so it begins with a letter and has no dot: a release may be called otherwise. */}}
{{- define "stream-rater.fullname" -}}
{{- $name := include "stream-rater.anyFullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s: no name for a Service: set fullnameOverride, or call the release otherwise" $name) -}}
{{- end -}}
{{- if not (get (fromYaml (printf "it: %s" $name)) "it" | kindIs "string") -}}
{{- fail (printf "%s: YAML takes it for another value than a text: set another fullnameOverride" $name) -}}
{{- end -}}
{{ $name }}
{{- end }}

{{- define "stream-rater.anyFullname" -}}
{{- $name := include "stream-rater.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What never changes: selectors are immutable. */}}
{{- define "stream-rater.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stream-rater.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{/* Of the pod of `helm test`, which is no worker. */}}
{{- define "stream-rater.testLabels" -}}
app.kubernetes.io/name: {{ include "stream-rater.name" . }}-test
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{- define "stream-rater.labels" -}}
{{ include "stream-rater.selectorLabels" . }}
{{ include "stream-rater.releaseLabels" . }}
{{- end }}

{{- define "stream-rater.releaseLabels" -}}
app.kubernetes.io/version: {{ regexReplaceAll "^[^A-Za-z0-9]+|[^A-Za-z0-9]+$" (.Values.image.tag | default .Chart.AppVersion | trunc 63) "" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* Of a component: dict root, component. Pods of `serve` and of jobs are no workers: what selects those
does not select these. */}}
{{- define "stream-rater.programLabels" -}}
{{- $suffix := dict "estimator" "" "updater" "" "all" "" "serve" "-serve" -}}
app.kubernetes.io/name: {{ printf "%s%s" (include "stream-rater.name" .root) (hasKey $suffix .component | ternary (get $suffix .component) "-jobs") | toYaml }}
app.kubernetes.io/instance: {{ toYaml .root.Release.Name }}
{{- end }}

{{/* Labels that the pods of a component have and others have not: dict root, component. */}}
{{- define "stream-rater.componentLabels" -}}
{{ include "stream-rater.programLabels" . }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Name and labels of what belongs to a component: dict root, component. */}}
{{- define "stream-rater.componentMetadata" -}}
name: {{ include "stream-rater.fullname" .root }}-{{ .component }}
labels:
  {{- include "stream-rater.programLabels" . | nindent 2 }}
  {{- include "stream-rater.releaseLabels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* What Prometheus calls the release's workers. */}}
{{- define "stream-rater.job" -}}
stream-rater/{{ .Release.Namespace }}/{{ include "stream-rater.fullname" . }}
{{- end }}

{{/* And the pods of `serve`. */}}
{{- define "stream-rater.serveJob" -}}
stream-rater-serve/{{ .Release.Namespace }}/{{ include "stream-rater.fullname" . }}
{{- end }}

{{- define "stream-rater.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "stream-rater.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "stream-rater.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where a worker's endpoints are, and in pods of `serve` the API. (Outside of the chart the API is at
9109 by default.) */}}
{{- define "stream-rater.port" -}}9108{{- end }}

{{/* The components of workers: "estimator updater", or "all". `serve` is a component of its own. */}}
{{- define "stream-rater.components" -}}
{{ eq .Values.role "all" | ternary "all" "estimator updater" }}
{{- end }}
