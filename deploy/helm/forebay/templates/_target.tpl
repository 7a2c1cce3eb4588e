{{/* What a target has that a gateway has not. */}}

{{- define "forebay.target.toml" -}}
[cluster]
name = {{ include "forebay.fullname" . | quote }}
gateways = {{ include "forebay.gatewayUrls" . }}
{{ include "forebay.joinSetting" (dict "root" . "role" "target") }}

[node]
# node.id and listen.advertise come from the pod's name, by its environment.
dir = "/var/lib/forebay/disk0/node"

[listen]
http = {{ include "forebay.listen" (dict "root" . "role" "target") | quote }}
hosts = {{ include "forebay.hosts" . }}
{{- include "forebay.externalSettings" (dict "root" . "role" "target") }}
# Pods must be reachable by their addresses. Users ([auth]) decide who may do what; without them, only the
# NetworkPolicy keeps others out.
insecure = true
{{ range $i, $disk := .Values.target.disks }}
[[disk]]
# A folder below the volume's root: file systems keep a lost+found there.
path = "/var/lib/forebay/disk{{ $i }}/store"
size = {{ include "forebay.budget" $disk | quote }}
{{ end }}
[cache]
high = {{ .Values.cache.high }}
low = {{ .Values.cache.low }}

[folder]
roots = {{ toJson .Values.target.folderRoots }}

[egress]
allow = {{ toJson .Values.target.egressAllow }}

[limits]
batches = {{ .Values.limits.batches }}
batch_memory = {{ include "forebay.batchMemory" . | quote }}
cold_gets = {{ .Values.limits.coldGets }}

[log]
level = {{ .Values.log.level | quote }}
format = {{ .Values.log.format | quote }}
{{- include "forebay.audit" . }}
{{- include "forebay.auth" (dict "root" . "role" "target") }}
{{- include "forebay.clouds" . }}
{{ end -}}

{{- define "forebay.target.mounts" -}}
{{- range $i, $disk := .Values.target.disks }}
- name: disk{{ $i }}
  mountPath: /var/lib/forebay/disk{{ $i }}
{{- end }}
{{- with .Values.backends.gcs }}
{{- if and .enabled .existingSecret }}
- name: gcs-key
  mountPath: /run/secrets/gcs
  readOnly: true
{{- end }}
{{- end }}
{{- include "forebay.cloudMounts" . }}
{{- end -}}

{{- define "forebay.target.volumes" -}}
{{- range $i, $disk := .Values.target.disks }}
{{- if eq $.Values.target.storage "emptyDir" }}
- name: disk{{ $i }}
  emptyDir:
    sizeLimit: {{ $disk.size }}
{{- else if eq $.Values.target.storage "hostPath" }}
- name: disk{{ $i }}
  hostPath:
    path: {{ $disk.path }}
    type: Directory
{{- end }}
{{- end }}
{{- with .Values.backends.gcs }}
{{- if and .enabled .existingSecret }}
- name: gcs-key
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .existingSecretKey }}
        path: key.json
{{- end }}
{{- end }}
{{- include "forebay.cloudVolumes" . }}
{{- end -}}

{{- define "forebay.target.claims" -}}
{{- if eq .Values.target.storage "pvc" }}
{{- range $i, $disk := .Values.target.disks }}
{{ include "forebay.claim" (dict "root" $ "role" "target" "name" (printf "disk%d" $i) "size" $disk.size "storageClass" $disk.storageClass) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Two targets of one host would write into the same folder. */}}
{{- define "forebay.target.affinity" -}}
{{- $affinity := deepCopy .Values.target.affinity -}}
{{- if eq .Values.target.storage "hostPath" -}}
{{- $labels := include "forebay.selectorLabels" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/component" "target" -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- $anti := deepCopy ($affinity.podAntiAffinity | default dict) -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $anti $key (append (index $anti $key | default list) $apart) -}}
{{- $_ := set $affinity "podAntiAffinity" $anti -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Environment by which targets find the clouds; the clouds' own names. */}}
{{- define "forebay.backendEnv" -}}
{{- with .Values.backends.s3 }}
{{- if .enabled }}
- name: AWS_REGION
  value: {{ .region | quote }}
{{- with .endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- if .existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .accessKeyIdKey }}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .secretAccessKeyKey }}
{{- with .sessionTokenKey }}
- name: AWS_SESSION_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.backends.s3.existingSecret }}
      key: {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.backends.gcs }}
{{- if .enabled }}
{{- with .endpoint }}
- name: STORAGE_EMULATOR_HOST
  value: {{ . | quote }}
{{- end }}
{{- if .existingSecret }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: /run/secrets/gcs/key.json
{{- end }}
{{- end }}
{{- end }}
{{- include "forebay.azureEnv" . }}
{{- end -}}

{{- define "forebay.azureEnv" -}}
{{- with .Values.backends.azure }}
{{- if .enabled }}
- name: AZURE_STORAGE_ACCOUNT
  {{- if .account }}
  value: {{ .account | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .accountNameKey }}
  {{- end }}
{{- with .endpoint }}
- name: AZURE_STORAGE_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- if .existingSecret }}
- name: {{ ternary "AZURE_STORAGE_SAS_TOKEN" "AZURE_STORAGE_KEY" (ne .sasTokenKey "") }}
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .sasTokenKey | default .storageKeyKey }}
{{- else if not .workloadIdentity }}
# The identity of the machine. With workload identity, AKS adds its own variables to the pod.
- name: AZURE_STORAGE_AUTH_MODE
  value: login
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Containers that make the disks usable before the target starts. */}}
{{- define "forebay.target.initContainers" -}}
{{- with .Values.target.chownDisks }}
{{- if .enabled }}
{{- $user := $.Values.podSecurityContext.runAsUser | default 65532 | int }}
{{- $group := $.Values.podSecurityContext.fsGroup | default $user | int }}
- name: chown-disks
  image: {{ .image }}
  imagePullPolicy: IfNotPresent
  # The folders alone: what is in them was written by the target.
  command:
    - chown
    - {{ printf "%d:%d" $user $group | quote }}
    {{- range $i, $_ := $.Values.target.disks }}
    - /var/lib/forebay/disk{{ $i }}
    {{- end }}
  securityContext:
    runAsUser: 0
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      add: [CHOWN]
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    {{- range $i, $_ := $.Values.target.disks }}
    - name: disk{{ $i }}
      mountPath: /var/lib/forebay/disk{{ $i }}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}
