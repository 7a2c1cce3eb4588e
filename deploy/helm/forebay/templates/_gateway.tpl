{{/* What a gateway has that a target has not. */}}

{{- define "forebay.gateway.toml" -}}
[cluster]
name = {{ include "forebay.fullname" . | quote }}
gateways = {{ include "forebay.gatewayUrls" . }}
{{ include "forebay.joinSetting" (dict "root" . "role" "gateway") }}

[node]
# node.id and listen.advertise come from the pod's name, by its environment.
dir = "/var/lib/forebay/gateway"

[listen]
http = {{ include "forebay.listen" (dict "root" . "role" "gateway") | quote }}
hosts = {{ include "forebay.hosts" . }}
{{- include "forebay.externalSettings" (dict "root" . "role" "gateway") }}
# Pods must be reachable by their addresses. Users ([auth]) decide who may do what; without them, only the
# NetworkPolicy keeps others out.
insecure = true

[log]
level = {{ .Values.log.level | quote }}
format = {{ .Values.log.format | quote }}
{{- include "forebay.audit" . }}
{{- include "forebay.auth" (dict "root" . "role" "gateway") }}
{{ end -}}

{{- define "forebay.gateway.mounts" -}}
- name: state
  mountPath: /var/lib/forebay
{{- end -}}

{{- define "forebay.gateway.volumes" -}}
{{- if not .Values.gateway.persistence.enabled }}
- name: state
  emptyDir: {}
{{- end }}
{{- end -}}

{{- define "forebay.gateway.claims" -}}
{{- $p := .Values.gateway.persistence -}}
{{- if $p.enabled -}}
{{- include "forebay.claim" (dict "root" . "role" "gateway" "name" "state" "size" $p.size "storageClass" $p.storageClass) -}}
{{- end -}}
{{- end -}}

{{- define "forebay.gateway.initContainers" -}}
{{- end -}}

{{- define "forebay.gateway.affinity" -}}
{{- with .Values.gateway.affinity }}{{ toYaml . }}{{ end -}}
{{- end -}}
