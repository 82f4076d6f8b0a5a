{{/* The files of the ConfigMap; pods restart, one by one, when they change. */}}

{{- define "stream-rater.config" -}}
settings.toml: {{ include "stream-rater.block" (dict "name" "settings" "text" (include "stream-rater.settings" .)) }}
{{- with .Values.ladders }}
ladders.toml: {{ include "stream-rater.block" (dict "name" "ladders" "text" (trim .)) }}
{{- end }}
{{- end }}

{{/* A text as a block: dict name, text. What follows a line break that only YAML takes for one would
stand outside of the block, as if it were the chart's. */}}
{{- define "stream-rater.block" -}}
{{- $text := replace "\r\n" "\n" .text -}}
{{- if regexMatch "[\r\\x{85}\\x{2028}\\x{2029}]" $text -}}
{{- fail (printf "%s: a line ends with U+000D, U+0085, U+2028 or U+2029: end it with U+000A, or write the character as a TOML escape" .name) -}}
{{- end -}}
|
  {{- nindent 2 $text }}
{{- end }}
