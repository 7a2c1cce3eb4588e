{{/* Accounts of clouds in addition to those of the environment: tables [[cloud]] of targets (docs/clouds.md). */}}

{{- define "forebay.clouds" -}}
{{- range .Values.target.clouds }}
{{- $cloud := . }}

[[cloud]]
name = {{ toJson .name }}
provider = {{ toJson .provider }}
{{- range $value, $setting := include "forebay.cloudSettings" $ | fromYaml }}
{{- with index $cloud $value }}
{{ $setting }} = {{ toJson . }}
{{- end }}
{{- end }}
{{- range $value, $setting := include "forebay.cloudFiles" $ | fromYaml }}
{{- with index $cloud $value }}
{{ $setting }} = {{ printf "/run/secrets/clouds/%s/%s" $cloud.name . | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Settings of an account, by the value that has their text. */}}
{{- define "forebay.cloudSettings" -}}
endpoint: endpoint
endpoints: endpoints
region: region
profile: profile
accessKey: access_key
storageAccount: storage_account
requesterPays: requester_pays
{{- end -}}

{{/* Settings of an account that are files, by the value that names the key of its Secret. */}}
{{- define "forebay.cloudFiles" -}}
secretKeyKey: secret_key_file
credentialsKey: credentials_file
sasKey: sas_file
{{- end -}}

{{- define "forebay.cloudMounts" -}}
{{- range $i, $cloud := .Values.target.clouds }}
{{- if $cloud.existingSecret }}
- name: cloud-{{ $i }}
  mountPath: /run/secrets/clouds/{{ $cloud.name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "forebay.cloudVolumes" -}}
{{- range $i, $cloud := .Values.target.clouds }}
{{- if $cloud.existingSecret }}
- name: cloud-{{ $i }}
  secret:
    secretName: {{ $cloud.existingSecret }}
    # Targets refuse a credential that other users can read.
    defaultMode: 0440
    items:
      {{- range $value, $_ := include "forebay.cloudFiles" $ | fromYaml }}
      {{- with index $cloud $value }}
      - {key: {{ . | quote }}, path: {{ . | quote }}}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Ports of the servers of all accounts, as a JSON array. A server without a port is reached at 443. */}}
{{- define "forebay.cloudPorts" -}}
{{- $ports := list -}}
{{- range .Values.target.clouds -}}
{{- with .endpoint }}{{ $ports = append $ports (include "forebay.urlPort" . | int) }}{{ end -}}
{{- range .endpoints -}}
{{- $ports = append $ports (include "forebay.urlPort" (printf "https://%s" .) | int) -}}
{{- end -}}
{{- end -}}
{{- toJson ($ports | uniq) -}}
{{- end -}}

{{/* "true" if an account or a cloud of the environment asks the machine's identity service for its credential. */}}
{{- define "forebay.asksIdentity" -}}
{{- $backends := .Values.backends -}}
{{- $asks := false -}}
{{- range list $backends.s3 $backends.gcs $backends.azure -}}
{{- if and .enabled (not .existingSecret) (not .workloadIdentity) }}{{ $asks = true }}{{ end -}}
{{- end -}}
{{- range .Values.target.clouds }}{{ if not .existingSecret }}{{ $asks = true }}{{ end }}{{ end -}}
{{- if $asks }}true{{ end -}}
{{- end -}}

{{- define "forebay.validateClouds" -}}
{{- $names := list -}}
{{- range .Values.target.clouds -}}
{{- $cloud := . -}}
{{- $at := printf "target.clouds \"%s\"" .name -}}
{{- if has .name $names }}{{ fail (printf "%s is there twice" $at) }}{{ end -}}
{{- $names = append $names .name -}}
{{- $of := dict "region" "s3" "profile" "s3" "accessKey" "s3" "requesterPays" "s3" "secretKeyKey" "s3 azure" "storageAccount" "azure" "sasKey" "azure" -}}
{{- range $value, $providers := $of -}}
{{- if and (index $cloud $value) (not (has $cloud.provider (splitList " " $providers))) -}}
{{- fail (printf "%s: %s is no setting of the provider %s" $at $value $cloud.provider) -}}
{{- end -}}
{{- end -}}
{{- $keys := list -}}
{{- range $value, $_ := include "forebay.cloudFiles" $ | fromYaml -}}
{{- if index $cloud $value }}{{ $keys = append $keys $value }}{{ end -}}
{{- end -}}
{{- if and $keys (not .existingSecret) -}}
{{- fail (printf "%s: %s needs existingSecret" $at (first $keys)) -}}
{{- end -}}
{{- if and .existingSecret (not $keys) -}}
{{- fail (printf "%s: existingSecret needs one of secretKeyKey, credentialsKey and sasKey" $at) -}}
{{- end -}}
{{- if gt (len $keys) 1 -}}
{{- fail (printf "%s has more than one credential: keep one of secretKeyKey, credentialsKey and sasKey" $at) -}}
{{- end -}}
{{- if and .profile .secretKeyKey -}}
{{- fail (printf "%s has more than one credential: keep profile, or accessKey and secretKeyKey" $at) -}}
{{- end -}}
{{- if and (eq .provider "s3") (ne (empty .accessKey) (empty .secretKeyKey)) -}}
{{- fail (printf "%s: accessKey and secretKeyKey belong together" $at) -}}
{{- end -}}
{{- if and (eq .provider "azure") (not .storageAccount) (not .endpoint) (not .credentialsKey) -}}
{{- fail (printf "%s needs storageAccount" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
