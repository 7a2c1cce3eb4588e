{{/* Clients outside of the Kubernetes cluster: names and URLs by which they reach gateways and each target. */}}

{{/* Scheme of URLs for clients outside. */}}
{{- define "forebay.externalScheme" -}}
{{- if eq .Values.external.type "Ingress" -}}
{{- if .Values.external.ingress.tlsSecret }}https{{ else }}http{{ end -}}
{{- else -}}
{{- include "forebay.scheme" . -}}
{{- end -}}
{{- end -}}

{{/* The name of a target, with {ordinal} or {name} in it unless all share one. */}}
{{- define "forebay.externalTargetHost" -}}
{{- with .Values.external -}}
{{- if .targetHost }}{{ .targetHost }}
{{- else if eq .type "NodePort" }}{{ .host }}
{{- else }}target-{ordinal}.{{ .host }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* A text about one target: dict "root" $ "text" t "ordinal" 2 */}}
{{- define "forebay.ofTarget" -}}
{{- $name := printf "%s-target-%d" (include "forebay.fullname" .root) (int .ordinal) -}}
{{- $host := include "forebay.externalTargetHost" .root -}}
{{- .text | replace "{host}" $host | replace "{name}" $name | replace "{ordinal}" (toString .ordinal) -}}
{{- end -}}

{{/* URL of a node for clients outside, as the setting listen.external has it. */}}
{{- define "forebay.externalUrl" -}}
{{- $e := .root.Values.external -}}
{{- $host := ternary $e.host (include "forebay.externalTargetHost" .root) (eq .role "gateway") -}}
{{- $port := "" -}}
{{- if eq $e.type "NodePort" -}}
{{- $port = ternary (printf ":%d" (int $e.nodePorts.gateway)) (printf ":{ordinal+%d}" (int $e.nodePorts.firstTarget)) (eq .role "gateway") -}}
{{- else if eq $e.type "LoadBalancer" -}}
{{- $port = ternary (printf ":%d" (int .root.Values.service.port)) ":7410" (eq .role "gateway") -}}
{{- end -}}
{{ include "forebay.externalScheme" .root }}://{{ $host }}{{ $port }}
{{- end -}}

{{/* Names under which clients outside reach nodes, as a JSON array. Names of targets are one wildcard: a list of
them would change the settings of every node when their number changes. */}}
{{- define "forebay.externalHosts" -}}
{{- $hosts := list -}}
{{- with .Values.external -}}
{{- if .enabled -}}
{{- $target := include "forebay.externalTargetHost" $ -}}
{{- if contains "{" $target }}{{ $target = printf "*.%s" (regexReplaceAll "^[^.]*[.]" $target "") }}{{ end -}}
{{- $hosts = append (prepend .hosts .host) $target | uniq -}}
{{- end -}}
{{- end -}}
{{- toJson $hosts -}}
{{- end -}}

{{/* Lines of the section [listen]: dict "root" $ "role" "target" */}}
{{- define "forebay.externalSettings" -}}
{{- if .root.Values.external.enabled }}
# Clients that use one of these names get the URLs for clients outside.
external = {{ include "forebay.externalUrl" . | quote }}
external_hosts = {{ include "forebay.externalHosts" .root }}
{{- end }}
{{- end -}}

{{- define "forebay.validateExternal" -}}
{{- with .Values.external -}}
{{- if .enabled -}}
{{- if not .host -}}
{{- fail "external.enabled needs external.host, the name under which clients outside reach the gateways" -}}
{{- end -}}
{{- if and $.Values.networkPolicy.enabled (not .clients) -}}
{{- fail "external.enabled needs external.clients: who may reach nodes from outside, as NetworkPolicy peers, such as {ipBlock: {cidr: 192.0.2.0/24}}, or the pods of the Ingress controller" -}}
{{- end -}}
{{- $target := include "forebay.externalTargetHost" $ -}}
{{- $apart := or (contains "{ordinal}" $target) (contains "{name}" $target) -}}
{{- if and (ne .type "NodePort") (not $apart) -}}
{{- fail (printf "external.targetHost (%s) needs {ordinal} or {name} with external.type=%s: each target has a name of its own" $target .type) -}}
{{- end -}}
{{- $rest := regexReplaceAll "^[^.]*" $target "" -}}
{{- if or (contains "{" $rest) (and $apart (not $rest)) -}}
{{- fail (printf "external.targetHost (%s) may have {ordinal} and {name} only before its first dot: nodes accept the names of all targets by one wildcard" $target) -}}
{{- end -}}
{{- if eq .type "NodePort" -}}
{{- $first := int .nodePorts.firstTarget -}}
{{- $last := sub (add $first (int $.Values.target.replicas)) 1 | int -}}
{{- $gateway := int .nodePorts.gateway -}}
{{- if and (ge $gateway $first) (le $gateway $last) -}}
{{- fail (printf "external.nodePorts.gateway (%d) is one of the ports of targets, %d to %d" $gateway $first $last) -}}
{{- end -}}
{{- if gt $last 65535 -}}
{{- fail (printf "external.nodePorts.firstTarget (%d) is too high for %d targets" $first (int $.Values.target.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "forebay.loadBalancer" -}}
{{- if eq .Values.external.type "LoadBalancer" }}
{{- with .Values.external.loadBalancer }}
{{- with .className }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with .sourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
