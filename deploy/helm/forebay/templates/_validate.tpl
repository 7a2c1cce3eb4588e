{{/* What values.schema.json cannot say. */}}
{{- define "forebay.validate" -}}
{{- if and (gt (int .Values.gateway.replicas) 1) (not .Values.gateway.persistence.enabled) -}}
{{- fail "gateway.persistence.enabled=false needs gateway.replicas=1: a gateway that forgets how it voted may vote twice" -}}
{{- end -}}
{{- include "forebay.keepsGateways" . -}}
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

{{/* Gateways refuse to start with another list of gateways than their group was made with, and by
then the upgrade has stopped the old ones. Sees the running release only when a cluster is asked. */}}
{{- define "forebay.keepsGateways" -}}
{{- $name := printf "%s-gateway" (include "forebay.fullname" .) -}}
{{- $live := lookup "v1" "ConfigMap" .Release.Namespace $name -}}
{{- if and .Release.IsUpgrade $live -}}
{{- $line := regexFind "(?m)^gateways = .*$" (index $live.data "gateway.toml" | default "") -}}
{{- $new := printf "gateways = %s" (include "forebay.gatewayUrls" .) -}}
{{- if and $line (ne $line $new) -}}
{{- fail (printf "gateway.replicas, clusterDomain and the names of gateways cannot change: the group was made with %s. Put them back; or, if its volumes are new, delete ConfigMap %s first" (trimPrefix "gateways = " $line) $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
