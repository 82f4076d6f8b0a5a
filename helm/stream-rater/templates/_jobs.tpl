{{/* CronJobs: by name, what the containers of a job are, as JSON. `first` run before `then`. */}}
{{- define "stream-rater.jobs" -}}
{{- $found := dict -}}
{{- range $name, $own := .Values.jobs -}}
{{- if $own.enabled -}}
{{- $_ := set $found $name (dict "first" list "then" (list (dict "name" "stream-rater" "words" ($own.args | default list)))) -}}
{{- end -}}
{{- end -}}
{{- with .Values.seasons -}}
{{- if .enabled -}}
{{- $first := list -}}
{{- $then := list -}}
{{- range $i, $ladder := .ladders -}}
{{- $season := list "correct" "season" $ladder $.Values.seasons.number "--keep" (toString $.Values.seasons.keep) "--sigma" (toString $.Values.seasons.sigma) -}}
{{- $standings := list "season-standings" $ladder "--wait" (toString $.Values.seasons.waitSeconds) -}}
{{- $first = append $first (dict "name" (printf "start-%d" $i) "words" $season) -}}
{{- $then = append $then (dict "name" (printf "standings-%d" $i) "words" $standings) -}}
{{- end -}}
{{- $_ := set $found "seasons" (dict "first" $first "then" $then) -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
{{- end }}

{{/* The values of a job: dict root, component. */}}
{{- define "stream-rater.jobValues" -}}
{{ eq .component "seasons" | ternary .root.Values.seasons (get .root.Values.jobs .component) | toYaml }}
{{- end }}

{{/* A CronJob: dict root, component, first, then. */}}
{{- define "stream-rater.cronJob" -}}
{{- $own := include "stream-rater.jobValues" . | fromYaml -}}
{{- $seasons := eq .component "seasons" -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  {{- include "stream-rater.componentMetadata" . | nindent 2 }}
spec:
  schedule: {{ toYaml $own.schedule }}
  timeZone: Etc/UTC # as the number of a season
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3 # with their logs
  jobTemplate:
    metadata:
      labels:
        {{- include "stream-rater.componentLabels" . | nindent 8 }}
    spec:
      backoffLimit: {{ ternary 10 1 $seasons }}
      {{- with $own.deadlineSeconds }}
      activeDeadlineSeconds: {{ int . }}
      {{- end }}
      template:
        metadata:
          labels:
            {{- include "stream-rater.componentLabels" . | nindent 12 }}
            {{- with .root.Values.podLabels }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .root.Values.podAnnotations }}
          annotations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          restartPolicy: {{ ternary "OnFailure" "Never" $seasons }}
          {{- include "stream-rater.podBasics" . | nindent 10 }}
          {{- with include "stream-rater.podWishes" . | trim }}
          {{- nindent 10 . }}
          {{- end }}
          {{- with .first }}
          initContainers: # a season that was started already is rejected: it is harmless to try again
            {{- range . }}
            - {{ merge . $ | include "stream-rater.jobContainer" | nindent 14 | trim }}
            {{- end }}
          {{- end }}
          containers:
            {{- range .then }}
            - {{ merge . $ | include "stream-rater.jobContainer" | nindent 14 | trim }}
            {{- end }}
          volumes:
            {{- include "stream-rater.volumes" . | nindent 12 }}
{{- end }}

{{/* Its container: dict root, component, name, words (of the command). */}}
{{- define "stream-rater.jobContainer" }}
{{- $own := include "stream-rater.jobValues" . | fromYaml -}}
{{- $settings := "/etc/stream-rater/config/settings.toml" -}}
name: {{ .name }}
{{- if eq .component "backup" }}
command: [python, -c]
args:
  - |
    {{- .root.Files.Get "files/snapshot.py" | trim | nindent 4 }}
  - {{ $settings }}
{{- else }}
command: [stream-rater]
args: {{ concat .words (list "--settings" $settings) | toJson }}
{{- end }}
{{- with include "stream-rater.commonEnv" . | trim }}
env:
  {{- nindent 2 . }}
{{- end }}
{{- with $own.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "stream-rater.containerBasics" . }}
{{- end }}
