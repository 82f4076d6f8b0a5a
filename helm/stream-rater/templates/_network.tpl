{{/* Where pods may connect to. */}}

{{- define "stream-rater.egress" -}}
- ports: # DNS
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
  {{- with .Values.networkPolicy.to.dns }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- $open := list -}}
{{- range $name := list "kafka" "redis" "collector" -}}
{{- $ports := include (printf "stream-rater.%sPorts" $name) $ | trim -}}
{{- $to := get $.Values.networkPolicy.to $name -}}
{{- if and $ports $to }}
- ports: # {{ $name }}
    {{- range splitList " " $ports | compact | uniq }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  to:
    {{- toYaml $to | nindent 4 }}
{{- else if $ports -}}
{{- $open = concat $open (splitList " " $ports | compact) -}}
{{- end -}}
{{- end }}
{{- with $open }}
- ports: # of any address
    {{- range uniq . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Ports of Kafka, of Redis, and of the collector if there is one: those in the values, or else those of the addresses. */}}

{{- define "stream-rater.kafkaPorts" -}}
{{- range .Values.networkPolicy.kafkaPorts -}}
{{ printf "%d " (int .) }}
{{- else -}}
{{- range splitList "," .Values.kafka.bootstrapServers -}}
{{ regexFind "[0-9]+$" (trim .) | printf "%s " }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "stream-rater.redisPorts" -}}
{{- range .Values.networkPolicy.redisPorts -}}
{{ printf "%d " (int .) }}
{{- else -}}
{{- if contains "+sentinel:" .Values.redis.url -}}
6379 {{/* of the servers that the sentinels name */}}
{{- range regexFindAll ":[0-9]+[,/]" .Values.redis.url -1 }} {{ regexFind "[0-9]+" . }}{{ end -}}
{{- else -}}
{{ regexFind "[0-9]+" (regexFind ":[0-9]+(/[0-9]*)?$" .Values.redis.url) | default "6379" }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "stream-rater.collectorPorts" -}}
{{- with .Values.tracing.endpoint -}}
{{- $at := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $at.host) -}}
{{ $port | default (ternary "443" "80" (eq $at.scheme "https")) }}
{{- end -}}
{{- end }}
