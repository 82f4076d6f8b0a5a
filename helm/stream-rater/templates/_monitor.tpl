{{/* A ServiceMonitor or PodMonitor: dict root, metadata, selector, job; port, if it is not http. */}}

{{- define "stream-rater.monitor" -}}
{{- $own := .root.Values.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ $own.kind }}
metadata:
  {{- nindent 2 .metadata }}
    {{- with $own.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- nindent 6 .selector }}
  {{ eq $own.kind "PodMonitor" | ternary "podMetricsEndpoints" "endpoints" }}:
    - port: {{ .port | default "http" }}
      path: /metrics
      interval: {{ $own.interval }}
      scrapeTimeout: {{ $own.scrapeTimeout }}
      relabelings: # a job for each release, which the rules know by its beginning
        - targetLabel: job
          replacement: {{ .job }}
{{- end }}
