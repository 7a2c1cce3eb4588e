{{/* Names, labels and small sums that all templates share. */}}

{{- define "forebay.name" -}}
{{- .Values.nameOverride | default .Chart.Name | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters, so that pod names and their labels stay below Kubernetes' limits; a
letter first, as node ids and Services want. */}}
{{- define "forebay.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if contains $name .Release.Name }}{{ $full = .Release.Name }}{{ end -}}
{{- $full = .Values.fullnameOverride | default $full | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $full) }}{{ $full = printf "forebay-%s" $full }}{{ end -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "forebay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "forebay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "forebay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "forebay.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: forebay
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of a resource: dict "root" $ "suffix" "-x" "component" "x" "annotations" {} "labels" {} */}}
{{- define "forebay.metadata" -}}
name: {{ include "forebay.fullname" .root }}{{ .suffix }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "forebay.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The S3 keys as the setting s3.keys has them: a list of TOML tables in one line. */}}
{{- define "forebay.s3Keys" -}}
{{- $keys := list -}}
{{- range .Values.s3.keys -}}
{{- $user := "" -}}
{{- with .user }}{{ $user = printf ", user = %s" (toJson .) }}{{ end -}}
{{- $keys = append $keys (printf "{access = %s, secret = %s%s}" (toJson .access) (toJson .secret) $user) -}}
{{- end -}}
[{{ join ", " $keys }}]
{{- end -}}

{{/* Environment by which every node gets the same S3 keys. */}}
{{- define "forebay.s3Env" -}}
{{- with .Values.s3 }}
{{- if .existingSecret }}
- name: FOREBAY_S3__KEYS
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .existingSecretKey }}
{{- else if .keys }}
- name: FOREBAY_S3__KEYS
  valueFrom:
    secretKeyRef:
      name: {{ include "forebay.fullname" $ }}-s3
      key: keys
{{- end }}
{{- end }}
{{- end -}}

{{/* Advice of kube-score that is not taken, and why: CPU limits (container-resources) slow reads down while cores are
idle; limits on ephemeral storage would count the disks of target.storage=emptyDir; tags are fixed, so
what is there need not be pulled again. */}}
{{- define "forebay.unscored" -}}
container-resources,container-ephemeral-storage-request-and-limit,container-image-pull-policy
{{- end -}}

{{- define "forebay.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest }}{{ $i.repository }}@{{ $i.digest }}
{{- else }}{{ $i.repository }}:{{ $i.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "forebay.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "forebay.fullname" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end -}}

{{/* The Secret that the nodes share, and the key in it. */}}
{{- define "forebay.secretName" -}}
{{- .Values.cluster.existingSecret | default (printf "%s-cluster" (include "forebay.fullname" .)) -}}
{{- end -}}
{{- define "forebay.secretKey" -}}
{{- if .Values.cluster.existingSecret }}{{ .Values.cluster.existingSecretKey }}{{ else }}token{{ end -}}
{{- end -}}

{{- define "forebay.port" -}}
{{- if eq .role "gateway" }}7400{{ else }}7410{{ end -}}
{{- end -}}

{{/* DNS domain of the pods of one role: dict "root" $ "role" "gateway" */}}
{{- define "forebay.podDomain" -}}
{{- $full := include "forebay.fullname" .root -}}
{{ $full }}-{{ .role }}-headless.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{/* URLs of all gateways, as a TOML array. */}}
{{- define "forebay.gatewayUrls" -}}
{{- $domain := include "forebay.podDomain" (dict "root" . "role" "gateway") -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.gateway.replicas) -}}
{{- $urls = append $urls (printf "http://%s-gateway-%d.%s:7400" (include "forebay.fullname" $) $i $domain) -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}

{{/* URL for clients inside the cluster. */}}
{{- define "forebay.endpoint" -}}
{{ include "forebay.scheme" . }}://{{ include "forebay.fullname" . }}.{{ .Release.Namespace }}:{{ .Values.service.port }}
{{- end -}}

{{/* Names of the Services and of their pods, short and complete, as a TOML array: nodes refuse
requests under other names. */}}
{{- define "forebay.hosts" -}}
{{- $full := include "forebay.fullname" . -}}
{{- $hosts := list -}}
{{- range $service := list $full (printf "%s-gateway-headless" $full) (printf "%s-target-headless" $full) -}}
{{- $namespaced := printf "%s.%s" $service $.Release.Namespace -}}
{{- $svc := printf "%s.svc" $namespaced -}}
{{- $names := list $service $namespaced $svc (printf "%s.%s" $svc $.Values.clusterDomain) -}}
{{- $hosts = concat $hosts $names -}}
{{- if ne $service $full -}}
{{- range $name := $names }}{{ $hosts = append $hosts (printf "*.%s" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson (concat $hosts .Values.hosts (include "forebay.externalHosts" . | fromJsonArray) | uniq) -}}
{{- end -}}

{{- define "forebay.listen" -}}
{{- $a := .root.Values.listenAddress -}}
{{- if contains ":" $a }}[{{ $a }}]{{ else }}{{ $a }}{{ end }}:{{ include "forebay.port" . }}
{{- end -}}

{{/* The audit log, if there is a file or a collector. */}}
{{- define "forebay.audit" -}}
{{- with .Values.audit }}
{{- if or .file .url }}

[audit]
file = {{ .file | quote }}
max_size = {{ .maxSize | quote }}
keep = {{ .keep }}
url = {{ .url | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Bytes that a disk may use: its budget, or 85 % of its size. File systems keep some percent for
themselves, and the index and unfinished writes come on top of the objects. */}}
{{- define "forebay.budget" -}}
{{- if .budget -}}
{{- .budget -}}
{{- else -}}
{{- $number := regexFind "^[0-9]+" .size | int64 -}}
{{- $unit := regexFind "[KMGT]i$" .size -}}
{{- $mebi := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- div (mul $number (get $mebi $unit | int64) 85) 100 }}MiB
{{- end -}}
{{- end -}}

{{/* A quantity of memory in whole MiB, 0 if it is empty: 512Mi, 4Gi, 2G, 1073741824, 1.5Gi. */}}
{{- define "forebay.mebibytes" -}}
{{- $text := toString (. | default "0") -}}
{{- $number := regexFind "^[0-9.]+(e[0-9]+)?" (lower $text | replace "e+" "e") | float64 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $bytes := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- if not (hasKey $bytes $unit) -}}
{{- fail (printf "the quantity of memory %s is not understood: use Mi or Gi, for example 4Gi" $text) -}}
{{- end -}}
{{- floor (divf (mulf $number (get $bytes $unit)) 1048576.0) | int64 -}}
{{- end -}}

{{/* The memory limit of resources in MiB, 0 without one. */}}
{{- define "forebay.memoryMebibytes" -}}
{{- include "forebay.mebibytes" (.limits | default dict).memory -}}
{{- end -}}

{{/* Memory that the batches of a target share: a 32nd of its limit, which is the program's 128 MiB at 4 GiB. */}}
{{- define "forebay.batchMemory" -}}
{{- $limit := include "forebay.memoryMebibytes" .Values.target.resources | int64 -}}
{{- if .Values.limits.batchMemory }}{{ .Values.limits.batchMemory }}
{{- else if $limit }}{{ max 16 (div $limit 32) }}MiB
{{- else }}128MiB{{ end -}}
{{- end -}}

{{/* Port of a URL, by its scheme when it names none. */}}
{{- define "forebay.urlPort" -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- if $port }}{{ $port }}{{ else if eq $url.scheme "http" }}80{{ else }}443{{ end -}}
{{- end -}}
