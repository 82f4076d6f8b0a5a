{{/* A ServiceMonitor: dict root, metadata, selector, job; port, if it is not http. */}}

{{- define "stream-rater.serviceMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- nindent 2 .metadata }}
    {{- with .root.Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- nindent 6 .selector }}
  endpoints:
    - port: {{ .port | default "http" }}
      path: /metrics
      interval: {{ .root.Values.serviceMonitor.interval }}
      scrapeTimeout: {{ .root.Values.serviceMonitor.scrapeTimeout }}
      relabelings: # a job for each release, which the rules know by its beginning
        - targetLabel: job
          replacement: {{ .job }}
{{- end }}
