{{/* Certificates of nodes, and the CAs that they trust. */}}

{{/* The Secret with the certificate of nodes; empty without TLS. */}}
{{- define "forebay.tlsSecret" -}}
{{- if .Values.tls.secretName }}{{ .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled }}{{ include "forebay.fullname" . }}-tls{{ end -}}
{{- end -}}

{{/* Scheme of clients' endpoints. */}}
{{- define "forebay.scheme" -}}
{{- if include "forebay.tlsSecret" . }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* Probe of a path: dict "root" $ "path" "/healthz" */}}
{{- define "forebay.probe" -}}
{path: {{ .path }}, port: http{{ if include "forebay.tlsSecret" .root }}, scheme: HTTPS{{ end }}}
{{- end -}}

{{/* Environment by which nodes, and commands in their pods, find the certificates. */}}
{{- define "forebay.tlsEnv" -}}
{{- if include "forebay.tlsSecret" . }}
- name: FOREBAY_TLS__CERT
  value: /run/secrets/tls/tls.crt
- name: FOREBAY_TLS__KEY
  value: /run/secrets/tls/tls.key
- name: FOREBAY_TLS__CA
  value: /run/secrets/tls/ca.crt
- name: FOREBAY_TLS__HTTP
  value: {{ .Values.tls.http | quote }}
- name: FOREBAY_CA_FILE
  value: /run/secrets/tls/ca.crt
{{- end }}
{{- end -}}

{{/* Names under which nodes are reached, for a certificate, as a JSON array. Issuers refuse a wildcard of one label. */}}
{{- define "forebay.certificateNames" -}}
{{- $names := list -}}
{{- range include "forebay.hosts" . | fromJsonArray -}}
{{- if not (or (eq . "*") (and (hasPrefix "*." .) (not (contains "." (trimPrefix "*." .))))) -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- toJson (append $names "localhost" | uniq) -}}
{{- end -}}

{{/* Environment by which nodes trust the CAs of caBundle beside those of the image. */}}
{{- define "forebay.caEnv" -}}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret }}
- name: SSL_CERT_FILE
  value: /etc/ssl/certs/ca-certificates.crt
- name: SSL_CERT_DIR
  value: /run/secrets/ca
{{- end }}
{{- end -}}

{{- define "forebay.caMounts" -}}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret }}
- name: ca-bundle
  mountPath: /run/secrets/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "forebay.caVolumes" -}}
{{- with .Values.caBundle }}
{{- if .configMap }}
- name: ca-bundle
  configMap:
    name: {{ .configMap }}
    items:
      - key: {{ .key }}
        path: ca.pem
{{- else if .secret }}
- name: ca-bundle
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: ca.pem
{{- end }}
{{- end }}
{{- end -}}

{{- define "forebay.validateTls" -}}
{{- with .Values.tls }}
{{- if and .certManager.enabled (not .certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name, an issuer of cert-manager that writes ca.crt into the Secret" -}}
{{- end -}}
{{- if and .http (not (include "forebay.tlsSecret" $)) -}}
{{- fail "tls.http=true has no effect without tls.secretName or tls.certManager.enabled" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.caBundle.configMap .Values.caBundle.secret -}}
{{- fail "caBundle.configMap and caBundle.secret are both set: name one" -}}
{{- end -}}
{{- end -}}
