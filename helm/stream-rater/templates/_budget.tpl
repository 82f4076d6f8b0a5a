{{/* A role's PodDisruptionBudget: dict root, component. */}}

{{- define "stream-rater.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "stream-rater.componentMetadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "stream-rater.componentLabels" . | nindent 6 }}
{{- end }}
