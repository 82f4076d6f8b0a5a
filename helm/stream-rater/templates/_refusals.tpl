{{/* Refuses values that a schema cannot compare, or could not say what to do about. All at once, a line
each: which value, why, and the cure. */}}
{{- define "stream-rater.refusals" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- $port := ":([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])" -}}
{{- $host := "[^\\s,@/?#:]+" -}}
{{- $place := printf "%s%s" $host $port -}}
{{- $protocol := include "stream-rater.kafkaProtocol" . -}}
{{- $mechanism := upper $v.kafka.sasl.mechanism -}}
{{- $login := or $v.kafka.sasl.username $v.kafka.sasl.existingSecret -}}
{{- $tokens := eq $mechanism "OAUTHBEARER" -}}

{{- if not (regexMatch (printf "^%s(, ?%s)*$" $place $place) $v.kafka.bootstrapServers) -}}
{{- $wrong = append $wrong (printf "kafka.bootstrapServers: %q: write host:port, several separated by commas" $v.kafka.bootstrapServers) -}}
{{- end -}}
{{- if not (hasPrefix "sasl" $protocol) -}}
{{- if or $login $tokens $v.kafka.sasl.token -}}
{{- $wrong = append $wrong (printf "kafka.securityProtocol: %s logs nobody in, and kafka.sasl has a user or tokens: set it to SASL_SSL, or to SASL_PLAINTEXT without TLS" (upper $protocol)) -}}
{{- end -}}
{{- else if $tokens -}}
{{- if or $login $v.serve.kafka.username $v.serve.kafka.existingSecret -}}
{{- $wrong = append $wrong "kafka.sasl.mechanism: OAUTHBEARER logs in by tokens, without user or password: leave kafka.sasl.username, kafka.sasl.existingSecret and serve.kafka empty" -}}
{{- end -}}
{{- if $v.keda.enabled -}}
{{- $wrong = append $wrong "keda.enabled: KEDA cannot ask a Kafka with OAUTHBEARER for the lag: set it to false" -}}
{{- end -}}
{{- else -}}
{{- if not (and $v.kafka.sasl.username $v.kafka.sasl.existingSecret $v.kafka.sasl.passwordKey) -}}
{{- $wrong = append $wrong (printf "kafka.sasl: %s needs a user and a password: set kafka.sasl.username, and name the Secret with the password in kafka.sasl.existingSecret, its key in kafka.sasl.passwordKey" $mechanism) -}}
{{- end -}}
{{- if $v.kafka.sasl.token -}}
{{- $wrong = append $wrong (printf "kafka.sasl.token: %s has no tokens: set kafka.sasl.mechanism to OAUTHBEARER, or leave it empty" $mechanism) -}}
{{- end -}}
{{- end -}}
{{- range $option, $_ := $v.kafka.options -}}
{{- if regexMatch "pass|secret|\\.pem$|jaas|token|ssl\\.key" $option -}}
{{- $wrong = append $wrong (printf "kafka.options: %s: a secret, which all who read the ConfigMap would know: name a Secret in kafka.sasl or kafka.tls" $option) -}}
{{- else if has $option (list "bootstrap.servers" "security.protocol" "sasl.mechanism" "sasl.mechanisms" "sasl.username" "ssl.ca.location" "ssl.certificate.location") -}}
{{- $wrong = append $wrong (printf "kafka.options: %s: has a value of its own, in kafka" $option) -}}
{{- else if has $option (list "group.instance.id" "session.timeout.ms" "transaction.timeout.ms" "transactional.id") -}}
{{- $wrong = append $wrong (printf "kafka.options: %s: the service sets it: see settings" $option) -}}
{{- end -}}
{{- end -}}

{{- $sentinel := contains "+sentinel:" $v.redis.url -}}
{{- if regexMatch "@|password" $v.redis.url -}}
{{- $wrong = append $wrong "redis.url: a user or a password in it could be read by all: set redis.username, and name the Secret with the password in redis.existingSecret" -}}
{{- else if not (regexMatch (printf "^rediss?(://%s(%s)?|\\+sentinel://%s(,%s)*/%s)(/[0-9]+)?$" $host $port $place $place $host) $v.redis.url) -}}
{{- $wrong = append $wrong (printf "redis.url: %q: write redis://host:port/database, or rediss:// for TLS; with Sentinel redis+sentinel://host:port,host:port/NAME" $v.redis.url) -}}
{{- end -}}
{{- if and $sentinel $v.redis.cluster -}}
{{- $wrong = append $wrong "redis.cluster: Sentinel watches no cluster: set it to false, or redis.url to a node" -}}
{{- end -}}
{{- if and (not $sentinel) (or $v.redis.sentinel.username $v.redis.sentinel.existingSecret) -}}
{{- $wrong = append $wrong "redis.sentinel: redis.url names no sentinels: begin it with redis+sentinel:// or rediss+sentinel://" -}}
{{- end -}}
{{- range $at, $user := dict "redis" $v.redis "redis.sentinel" $v.redis.sentinel "serve.kafka" $v.serve.kafka "serve.redis" $v.serve.redis -}}
{{- if and $user.username (not $user.existingSecret) -}}
{{- $wrong = append $wrong (printf "%s.username: %s has no password: name its Secret in %s.existingSecret" $at $user.username $at) -}}
{{- end -}}
{{- if and $user.existingSecret (hasKey $user "passwordKey") (not $user.passwordKey) -}}
{{- $wrong = append $wrong (printf "%s.passwordKey: empty: name the key of the password in the Secret %s" $at $user.existingSecret) -}}
{{- end -}}
{{- end -}}

{{- range $server, $hint := dict "kafka" (hasSuffix "ssl" $protocol | ternary "" "kafka.securityProtocol has no TLS: set it to SSL or SASL_SSL") "redis" (regexMatch "^rediss[:+]" $v.redis.url | ternary "" "redis.url has no TLS: begin it with rediss") -}}
{{- with (get $v $server).tls -}}
{{- if and $hint (or .existingSecret .certificateSecret) -}}
{{- $wrong = append $wrong (printf "%s.tls: %s" $server $hint) -}}
{{- end -}}
{{- $own := list .certificateKey .keyKey (.certificateSecret | default .existingSecret) -}}
{{- if and (or .certificateKey .keyKey .certificateSecret) (has "" $own) -}}
{{- $wrong = append $wrong (printf "%s.tls: a client's certificate takes certificateKey, keyKey and their Secret (certificateSecret, or else existingSecret): set all three" $server) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- with $v.tracing.endpoint -}}
{{- if not (regexMatch (printf "^https?://%s(%s)?(/[^\\s?#]*)?$" $host $port) .) -}}
{{- $wrong = append $wrong (printf "tracing.endpoint: %q: write http://host:port, without a user or password" .) -}}
{{- end -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if hasPrefix "STREAM_RATER_" .name -}}
{{- $wrong = append $wrong (printf "extraEnv: %s: a setting: it has a value of its own (settings, kafka, redis, serve)" .name) -}}
{{- else if eq .name "OTEL_EXPORTER_OTLP_ENDPOINT" -}}
{{- $wrong = append $wrong (printf "extraEnv: %s: set tracing.endpoint" .name) -}}
{{- else if and (not .valueFrom) (or (regexMatch "(?i)pass|secret|token|credential|key|headers" .name) (regexMatch "://[^/\\s@]*:[^/\\s@]*@" (.value | default ""))) -}}
{{- $wrong = append $wrong (printf "extraEnv: %s: looks like a secret: give it by valueFrom, from a Secret" .name) -}}
{{- end -}}
{{- end -}}

{{- with $v.serve -}}
{{- $token := or .token.existingSecret .writeToken.existingSecret -}}
{{- range $way := list "ingress" "httpRoute" -}}
{{- with get $v.serve $way -}}
{{- if .enabled -}}
{{- if not .host -}}
{{- $wrong = append $wrong (printf "serve.%s.host: empty: name the host of the API" $way) -}}
{{- end -}}
{{- if and $token (not .tlsSecret) (not .tlsElsewhere) -}}
{{- $wrong = append $wrong (printf "serve.%s: without TLS whoever is on the way reads the tokens of requests: %s" $way (eq $way "ingress" | ternary "name the Secret of a certificate in serve.ingress.tlsSecret, or set serve.ingress.tlsElsewhere if TLS ends before the Ingress" "name a listener with TLS in serve.httpRoute.parentRefs, and set serve.httpRoute.tlsElsewhere")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- $wrong = append $wrong "serve.httpRoute.parentRefs: empty: name the Gateway, [{name: …, namespace: …, sectionName: …}]" -}}
{{- end -}}
{{- if and .index.existingClaim (or (gt (int .replicas) 1) .autoscaling.enabled) -}}
{{- $wrong = append $wrong "serve.index.existingClaim: an index is of one process: set serve.replicas to 1, without autoscaling" -}}
{{- end -}}
{{- if and .token.existingSecret (eq (toJson .token) (toJson .writeToken)) -}}
{{- $wrong = append $wrong "serve.writeToken: the same as serve.token, so whoever may read could write: name another Secret or key" -}}
{{- end -}}
{{- end -}}

{{- if and $v.ladders (not (regexMatch `(?m)^[ \t]*(\[[ \t]*ladders\b|ladders[^\n]*=)` $v.ladders)) -}}
{{- $wrong = append $wrong "ladders: no table [ladders]: give the text of the file, --set-file ladders=ladders.toml" -}}
{{- end -}}
{{- if and $v.seasons.enabled (not $v.seasons.ladders) -}}
{{- $wrong = append $wrong "seasons.ladders: empty: name the ladders whose seasons begin" -}}
{{- end -}}
{{- range $name, $own := $v.jobs -}}
{{- if or (eq $name "seasons") (not (regexMatch "^[a-z]([a-z0-9-]{0,9}[a-z0-9])?$" $name)) -}}
{{- $wrong = append $wrong (printf "jobs.%s: no name for a job of yours: take at most 11 small letters, digits and hyphens, and not seasons" $name) -}}
{{- end -}}
{{- if and $own.enabled (ne $name "backup") (not $own.args) -}}
{{- $wrong = append $wrong (printf "jobs.%s.args: empty: write the command and its options, [verify, --wait, \"600\"]" $name) -}}
{{- end -}}
{{- if and $own.enabled (not $own.schedule) -}}
{{- $wrong = append $wrong (printf "jobs.%s.schedule: empty: write it as in a crontab, such as 30 3 * * *" $name) -}}
{{- end -}}
{{- end -}}
{{- $most := max (int $v.settings.partitions) (int $v.settings.shards) -}}
{{- if and $v.keda.enabled (lt (int $v.keda.lagThreshold) (int $most)) -}}
{{- $wrong = append $wrong (printf "keda.lagThreshold: less than %d, the partitions or shards: transaction markers alone look like that lag: set it higher" $most) -}}
{{- end -}}
{{- range $at, $labels := dict "podLabels" $v.podLabels "podAnnotations" $v.podAnnotations "serviceMonitor.labels" $v.serviceMonitor.labels "prometheusRule.labels" $v.prometheusRule.labels "dashboard.labels" $v.dashboard.labels -}}
{{- range $label, $_ := $labels -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version|component|managed-by)|helm\\.sh/chart|checksum/config)$" $label -}}
{{- $wrong = append $wrong (printf "%s: %s: the chart sets it: choose another name" $at $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $v.serviceMonitor -}}
{{- if gt (include "stream-rater.milliseconds" .scrapeTimeout | int) (include "stream-rater.milliseconds" .interval | int) -}}
{{- $wrong = append $wrong (printf "serviceMonitor.scrapeTimeout: %s is longer than the interval, %s: set it to that at most" .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- with $wrong }}{{ fail (join "\n" . | printf "\n%s") }}{{ end -}}
{{- end }}

{{/* Of a duration in ms, s or m. */}}
{{- define "stream-rater.milliseconds" -}}
{{ mul (regexFind "^[0-9]+" . | int) (get (dict "ms" 1 "s" 1000 "m" 60000) (regexFind "[a-z]+$" .)) }}
{{- end }}
