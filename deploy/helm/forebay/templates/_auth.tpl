{{/* Users and tokens (docs/auth.md). */}}

{{/* "true" if the values make requests need a user. Users that an administrator adds do, too. */}}
{{- define "forebay.hasUsers" -}}
{{- if or .Values.auth.admin .Values.auth.required }}true{{ end -}}
{{- end -}}

{{/* Settings: dict "root" $ "role" "gateway" */}}
{{- define "forebay.auth" -}}
{{- $auth := .root.Values.auth -}}
{{- if or $auth.admin $auth.required $auth.optional $auth.issuers }}

[auth]
required = {{ $auth.required }}
{{- if $auth.optional }}
optional = true
{{- end }}
{{- if and $auth.admin (eq .role "gateway") }}
admin = {{ toJson $auth.admin }}
admin_password_file = "/run/secrets/admin/password"
{{- end }}
{{- range $auth.issuers }}
{{- $files := printf "/run/secrets/issuers/%s" .name }}

[[auth.issuer]]
name = {{ toJson .name }}
{{- with include "forebay.issuerUrl" . }}
url = {{ toJson . }}
{{- end }}
{{- if .issuer }}
issuer = {{ toJson .issuer }}
{{- else if and .kubernetes (not .url) }}
# The name that kubeadm configures. `kubectl get --raw /.well-known/openid-configuration` has the name.
issuer = {{ toJson (printf "https://kubernetes.default.svc.%s" $.root.Values.clusterDomain) }}
{{- end }}
{{- with .audience }}
audience = {{ toJson . }}
{{- end }}
algorithms = {{ toJson (.algorithms | default (list "RS256")) }}
{{- with .userClaim }}
user_claim = {{ toJson . }}
{{- end }}
{{- with .rolesClaim }}
roles_claim = {{ toJson . }}
{{- end }}
{{- if .aistoreClaims }}
aistore_claims = true
{{- end }}
{{- if .kubernetes }}
ca_file = "{{ $files }}/ca.crt"
token_file = "{{ $files }}/token"
{{- end }}
{{- $issuer := . }}
{{- range $value, $setting := include "forebay.issuerFiles" . | fromYaml }}
{{- with index $issuer $value }}
{{ $setting }} = "{{ $files }}/{{ . }}"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the keys of an issuer come from, if no file has them. */}}
{{- define "forebay.issuerUrl" -}}
{{- .url | default (ternary "https://kubernetes.default.svc" "" (.kubernetes | default false)) -}}
{{- end -}}

{{/* Settings of an issuer that are files, by the value that names the key of its Secret. */}}
{{- define "forebay.issuerFiles" -}}
jwksKey: jwks_file
publicKeyKey: key_file
sharedSecretKey: secret_file
caKey: ca_file
tokenKey: token_file
{{- end -}}

{{/* dict "root" $ "role" "gateway" */}}
{{- define "forebay.authMounts" -}}
{{- $auth := .root.Values.auth -}}
{{- if eq .role "gateway" }}
- name: login
  mountPath: /run/forebay
{{- if $auth.admin }}
- name: admin-password
  mountPath: /run/secrets/admin
  readOnly: true
{{- end }}
{{- end }}
{{- range $i, $issuer := $auth.issuers }}
{{- if or $issuer.kubernetes $issuer.existingSecret }}
- name: issuer-{{ $i }}
  mountPath: /run/secrets/issuers/{{ $issuer.name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{/* dict "root" $ "role" "gateway" */}}
{{- define "forebay.authVolumes" -}}
{{- $auth := .root.Values.auth -}}
{{- if eq .role "gateway" }}
# Tokens of `kubectl exec ... forebay auth login`; gone with the pod.
- name: login
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- if $auth.admin }}
- name: admin-password
  secret:
    secretName: {{ $auth.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ $auth.secretKey }}
        path: password
{{- end }}
{{- end }}
{{- range $i, $issuer := $auth.issuers }}
{{- if $issuer.kubernetes }}
# A token and the CA for requests to the Kubernetes API, which has the keys of its tokens.
- name: issuer-{{ $i }}
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
{{- else if $issuer.existingSecret }}
- name: issuer-{{ $i }}
  secret:
    secretName: {{ $issuer.existingSecret }}
    defaultMode: 0440
    items:
      {{- range $value, $_ := include "forebay.issuerFiles" $issuer | fromYaml }}
      {{- with index $issuer $value }}
      - {key: {{ . | quote }}, path: {{ . | quote }}}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Ports of the issuers whose keys nodes fetch, as a JSON array. */}}
{{- define "forebay.issuerPorts" -}}
{{- $ports := list -}}
{{- range .Values.auth.issuers -}}
{{- $url := include "forebay.issuerUrl" . -}}
{{- if and $url (not (or .jwksKey .publicKeyKey .sharedSecretKey)) -}}
{{- $ports = append $ports (include "forebay.urlPort" $url | int) -}}
{{/* Policies see the API server's own port, after translation of its Service. */}}
{{- if .kubernetes }}{{ $ports = append $ports 6443 }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson ($ports | uniq | sortAlpha) -}}
{{- end -}}

{{- define "forebay.validateAuth" -}}
{{- $auth := .Values.auth -}}
{{- if and $auth.admin (not $auth.existingSecret) -}}
{{- fail (printf "auth.admin needs auth.existingSecret, a Secret with the password under the key %s: kubectl -n %s create secret generic NAME --from-file=%s=FILE" $auth.secretKey .Release.Namespace $auth.secretKey) -}}
{{- end -}}
{{- if and $auth.existingSecret (not $auth.admin) -}}
{{- fail "auth.existingSecret has the password of auth.admin: name this user, or leave both empty" -}}
{{- end -}}
{{- if and $auth.required (not $auth.admin) (not $auth.issuers) -}}
{{- fail "auth.required=true needs auth.admin or auth.issuers: otherwise a new cluster refuses every request, that for the first user too" -}}
{{- end -}}
{{- if and (include "forebay.hasUsers" .) .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.tokenSecret) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.serviceMonitor.tokenSecret with auth.admin or auth.required: /metrics then needs the token of a user with the right show-cluster. The Secret may be created later (README.md, Users)" -}}
{{- end -}}
{{- $names := list -}}
{{- range $auth.issuers -}}
{{- $at := printf "auth.issuers \"%s\"" .name -}}
{{- if has .name $names }}{{ fail (printf "%s is there twice" $at) }}{{ end -}}
{{- $names = append $names .name -}}
{{- $keys := list -}}
{{- $issuer := . -}}
{{- range $value, $_ := include "forebay.issuerFiles" . | fromYaml -}}
{{- if index $issuer $value }}{{ $keys = append $keys $value }}{{ end -}}
{{- end -}}
{{- if and .kubernetes (or .existingSecret $keys) -}}
{{- fail (printf "%s: kubernetes=true brings the CA and a token of its own; remove existingSecret and its keys" $at) -}}
{{- end -}}
{{- if and $keys (not .existingSecret) -}}
{{- fail (printf "%s: %s needs existingSecret" $at (first $keys)) -}}
{{- end -}}
{{- if and .existingSecret (not $keys) -}}
{{- fail (printf "%s: existingSecret needs one of jwksKey, publicKeyKey, sharedSecretKey, caKey and tokenKey" $at) -}}
{{- end -}}
{{- $sources := 0 -}}
{{- range list "jwksKey" "publicKeyKey" "sharedSecretKey" }}{{ if has . $keys }}{{ $sources = add1 $sources }}{{ end }}{{ end -}}
{{- if or (gt (int $sources) 1) (and (eq (int $sources) 0) (not .url) (not .kubernetes)) -}}
{{- fail (printf "%s needs one of kubernetes, url, jwksKey, publicKeyKey and sharedSecretKey" $at) -}}
{{- end -}}
{{- if and (not .audience) (not .sharedSecretKey) -}}
{{- fail (printf "%s needs audience: without one, a token for another service would be valid here" $at) -}}
{{- end -}}
{{- if and (not .algorithms) (not .kubernetes) -}}
{{- fail (printf "%s needs algorithms, such as [RS256]" $at) -}}
{{- end -}}
{{- range .algorithms -}}
{{- if ne (hasPrefix "HS" .) (has "sharedSecretKey" $keys) -}}
{{- fail (printf "%s: algorithm %s and sharedSecretKey do not fit: HS algorithms need a shared secret, which verifies no others" $at .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
