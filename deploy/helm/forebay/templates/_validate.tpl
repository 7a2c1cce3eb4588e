{{/* What values.schema.json cannot say. */}}
{{- define "forebay.validate" -}}
{{- if and (gt (int .Values.gateway.replicas) 1) (not .Values.gateway.persistence.enabled) -}}
{{- fail "gateway.persistence.enabled=false needs gateway.replicas=1: a gateway that forgets how it voted may vote twice" -}}
{{- end -}}
{{- include "forebay.keepsGateways" . -}}
{{- include "forebay.validateAuth" . -}}
{{- include "forebay.validateJoin" . -}}
{{- include "forebay.validateTls" . -}}
{{- include "forebay.validateBackends" . -}}
{{- include "forebay.validateClouds" . -}}
{{- include "forebay.validateContainers" . -}}
{{- include "forebay.validateExternal" . -}}
{{- if ge (int .Values.cache.low) (int .Values.cache.high) -}}
{{- fail (printf "cache.low (%d) must be below cache.high (%d)" (int .Values.cache.low) (int .Values.cache.high)) -}}
{{- end -}}
{{- range $role := list "gateway" "target" -}}
{{- $v := index $.Values $role -}}
{{- if include "forebay.drains" (dict "root" $ "role" $role) -}}
{{- if le (int $v.terminationGracePeriodSeconds) (add (int $v.preStopSeconds) (int $v.drainTimeoutSeconds) 10) -}}
{{- fail (printf "target.terminationGracePeriodSeconds (%d) must exceed the sum of target.preStopSeconds (%d) and target.drainTimeoutSeconds (%d) by more than the 10 seconds that a node may take to stop. Raise it, or set target.drainOnScaleDown=false" (int $v.terminationGracePeriodSeconds) (int $v.preStopSeconds) (int $v.drainTimeoutSeconds)) -}}
{{- end -}}
{{- else if le (int $v.terminationGracePeriodSeconds) (add (int $v.preStopSeconds) 10) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds (%d) must exceed %s.preStopSeconds (%d) by more than the 10 seconds that a node may take to stop" $role (int $v.terminationGracePeriodSeconds) $role (int $v.preStopSeconds)) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.target.storage "hostPath" -}}
{{- range $i, $disk := .Values.target.disks -}}
{{- if not $disk.path }}{{ fail (printf "target.disks[%d].path is needed with target.storage=hostPath" $i) }}{{ end -}}
{{- end -}}
{{- else if .Values.target.chownDisks.enabled -}}
{{- fail (printf "target.chownDisks.enabled is for target.storage=hostPath: Kubernetes gives volumes of target.storage=%s to the group podSecurityContext.fsGroup" .Values.target.storage) -}}
{{- end -}}
{{- $quarter := div (include "forebay.memoryMebibytes" .Values.target.resources | int64) 4 -}}
{{- $batch := include "forebay.mebibytes" (.Values.limits.batchMemory | trimSuffix "B") | int64 -}}
{{- if and (gt (int $quarter) 0) (gt (int64 $batch) (int64 $quarter)) -}}
{{- fail (printf "limits.batchMemory (%s) must be at most a quarter of target.resources.limits.memory (%v): a target takes no more for batches" .Values.limits.batchMemory .Values.target.resources.limits.memory) -}}
{{- end -}}
{{- end -}}

{{- define "forebay.validateBackends" -}}
{{- with .Values.backends.azure -}}
{{- if .enabled -}}
{{- if not (or .account .existingSecret) -}}
{{- fail "backends.azure.enabled needs backends.azure.account, or backends.azure.existingSecret with the name of the account" -}}
{{- end -}}
{{- if and .workloadIdentity .existingSecret -}}
{{- fail "backends.azure.workloadIdentity and backends.azure.existingSecret exclude each other: a key in the Secret would be used instead of the identity. Name the account by backends.azure.account" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.backends.s3 -}}
{{- if and .sessionTokenKey (not .existingSecret) -}}
{{- fail "backends.s3.sessionTokenKey is a key of backends.s3.existingSecret: name the Secret, too" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "forebay.validateContainers" -}}
{{- range $role := list "gateway" "target" -}}
{{- $v := index $.Values $role -}}
{{- $names := list $role "chown-disks" -}}
{{- range $value := list "initContainers" "sidecars" -}}
{{- range index $v $value -}}
{{- if has .name $names }}{{ fail (printf "%s.%s: there is another container with the name %s" $role $value .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
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
