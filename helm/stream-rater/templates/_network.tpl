{{/* Where pods may connect to. */}}

{{- define "stream-rater.egress" -}}
- ports: # DNS
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports: # Kafka, Redis, and a collector
    {{- range include "stream-rater.egressPorts" . | trim | splitList " " }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Ports of Kafka, Redis and the collector, each once: the ports in the values, or else those of the addresses. */}}

{{- define "stream-rater.egressPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.kafkaPorts -}}
{{- $ports = append $ports (int .) -}}
{{- else -}}
{{- range splitList "," .Values.kafka.bootstrapServers -}}
{{- $ports = append $ports (regexFind "[0-9]+$" (trim .) | int) -}}
{{- end -}}
{{- end -}}
{{- range .Values.networkPolicy.redisPorts -}}
{{- $ports = append $ports (int .) -}}
{{- else -}}
{{- if contains "+sentinel:" .Values.redis.url -}}
{{- $ports = append $ports 6379 -}} {{/* of the servers that the sentinels name */}}
{{- range regexFindAll ":[0-9]+[,/]" .Values.redis.url -1 -}}
{{- $ports = append $ports (regexFind "[0-9]+" . | int) -}}
{{- end -}}
{{- else -}}
{{- $at := regexFind ":[0-9]+(/[0-9]*)?$" .Values.redis.url -}}
{{- $ports = append $ports (regexFind "[0-9]+" $at | default "6379" | int) -}}
{{- end -}}
{{- end -}}
{{- with .Values.tracing.endpoint -}}
{{- $at := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $at.host) -}}
{{- $ports = append $ports ($port | default (ternary "443" "80" (eq $at.scheme "https")) | int) -}}
{{- end -}}
{{ $ports | uniq | join " " }}
{{- end }}
