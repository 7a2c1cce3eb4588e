{{/* What values.schema.json cannot say. */}}
{{- define "forebay.validate" -}}
{{- if and (gt (int .Values.gateway.replicas) 1) (not .Values.gateway.persistence.enabled) -}}
{{- fail "gateway.persistence.enabled=false needs gateway.replicas=1: a gateway that forgets how it voted may vote twice" -}}
{{- end -}}
{{- include "forebay.keepsGateways" . -}}
{{- include "forebay.validateAuth" . -}}
{{- include "forebay.validateJoin" . -}}
{{- if ge (int .Values.cache.low) (int .Values.cache.high) -}}
{{- fail (printf "cache.low (%d) must be below cache.high (%d)" (int .Values.cache.low) (int .Values.cache.high)) -}}
{{- end -}}
{{- range $role := list "gateway" "target" -}}
{{- $v := index $.Values $role -}}
{{- if le (int $v.terminationGracePeriodSeconds) (add (int $v.preStopSeconds) 10) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds (%d) must exceed %s.preStopSeconds (%d) by more than the 10 seconds that a node may take to stop" $role (int $v.terminationGracePeriodSeconds) $role (int $v.preStopSeconds)) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.target.storage "hostPath" -}}
{{- range $i, $disk := .Values.target.disks -}}
{{- if not $disk.path }}{{ fail (printf "target.disks[%d].path is needed with target.storage=hostPath" $i) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A group of gateways may grow, but pods that go are still counted by it until they are taken out.
Sees the running release only when a cluster is asked. */}}
{{- define "forebay.keepsGateways" -}}
{{- $name := printf "%s-gateway" (include "forebay.fullname" .) -}}
{{- $live := lookup "v1" "ConfigMap" .Release.Namespace $name -}}
{{- if and .Release.IsUpgrade $live -}}
{{- $line := regexFind "(?m)^gateways = .*$" (index $live.data "gateway.toml" | default "") -}}
{{- $new := include "forebay.gatewayUrls" . | fromJsonArray -}}
{{- range $url := trimPrefix "gateways = " $line | default "[]" | fromJsonArray -}}
{{- if not (has $url $new) -}}
{{- fail (printf "gateway %s would be lost: clusterDomain and the names of gateways cannot change, and gateway.replicas only grows. Put them back; or, if it was taken out by `forebay node remove` or its volumes are new, delete ConfigMap %s first" $url $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
