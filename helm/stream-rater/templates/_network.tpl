{{/* Ports of Kafka and Redis, each once: those that are told, else those of the addresses. */}}

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
{{- $at := regexFind ":[0-9]+(/[0-9]*)?$" .Values.redis.url -}}
{{- $ports = append $ports (regexFind "[0-9]+" $at | default "6379" | int) -}}
{{- end -}}
{{ $ports | uniq | join " " }}
{{- end }}
