{{/* What proves that a node may join: the secret of the cluster, or a join token (docs/node-identity.md).
All take dict "root" $ "role" "target". */}}

{{/* "true" if the nodes of this role join by a token. */}}
{{- define "forebay.joinsByToken" -}}
{{- if and (eq .role "target") .root.Values.target.joinTokenSecret }}true{{ end -}}
{{- end -}}

{{- define "forebay.joinSetting" -}}
{{- if include "forebay.joinsByToken" . -}}
join_token_file = "/run/secrets/join/token"
{{- else -}}
secret_file = "/run/secrets/forebay/cluster"
{{- end -}}
{{- end -}}

{{- define "forebay.joinMounts" -}}
{{- if include "forebay.joinsByToken" . -}}
- name: join-token
  mountPath: /run/secrets/join
  readOnly: true
{{- else -}}
- name: cluster-secret
  mountPath: /run/secrets/forebay
  readOnly: true
{{- end }}
{{- end -}}

{{- define "forebay.joinVolumes" -}}
{{- if include "forebay.joinsByToken" . -}}
- name: join-token
  secret:
    secretName: {{ .root.Values.target.joinTokenSecret }}
    # After its first start a target needs no token, so the Secret may be gone.
    optional: true
    defaultMode: 0440
    items:
      - key: {{ .root.Values.target.joinTokenSecretKey }}
        path: token
{{- else -}}
- name: cluster-secret
  secret:
    secretName: {{ include "forebay.secretName" .root }}
    defaultMode: 0440
    items:
      - key: {{ include "forebay.secretKey" .root }}
        path: cluster
{{- end }}
{{- end -}}

{{- define "forebay.validateJoin" -}}
{{- if .Values.target.joinTokenSecret -}}
{{- if not (include "forebay.hasUsers" .) -}}
{{- fail "target.joinTokenSecret needs auth.admin or auth.required: a cluster without users makes no join tokens" -}}
{{- end -}}
{{- if eq .Values.target.storage "emptyDir" -}}
{{- fail "target.joinTokenSecret does not fit target.storage=emptyDir: each new pod would lose its key and need another token" -}}
{{- end -}}
{{- end -}}
{{- end -}}
