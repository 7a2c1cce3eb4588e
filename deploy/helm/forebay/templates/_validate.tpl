{{/* What values.schema.json cannot say. */}}
{{- define "forebay.validate" -}}
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
