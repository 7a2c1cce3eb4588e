{{/* Targets move their objects to others before a scale-down takes them away. */}}

{{/* "true" if pods of this role ask Kubernetes whether they are scaled down: dict "role" "target" "root" $ */}}
{{- define "forebay.drains" -}}
{{- if and (eq .role "target") .root.Values.target.drainOnScaleDown }}true{{ end -}}
{{- end -}}

{{/* The hook that runs before a node gets SIGTERM: dict "role" "target" "root" $ */}}
{{- define "forebay.lifecycle" -}}
{{- $v := index .root.Values .role -}}
{{- $name := printf "%s-%s" (include "forebay.fullname" .root) .role -}}
{{- if include "forebay.drains" . }}
lifecycle:
  preStop:
    exec:
      command:
        - /usr/local/bin/forebay
        - node
        - prestop
        - --config
        - /etc/forebay/{{ .role }}.toml
        - --statefulset
        - {{ $name }}
        - --namespace
        - {{ .root.Release.Namespace }}
        - --kubernetes-dir
        - /run/secrets/kubernetes
        - --delay
        - {{ printf "%ds" (int $v.preStopSeconds) }}
        - --drain-timeout
        - {{ printf "%ds" (int $v.drainTimeoutSeconds) }}
{{- else if and $v.preStopSeconds (semverCompare ">=1.30.0-0" .root.Capabilities.KubeVersion.Version) }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ $v.preStopSeconds }}
{{- end }}
{{- end -}}

{{/* A node that a probe found dead is killed after this time, not after that of a scale-down. */}}
{{- define "forebay.probeGrace" -}}
{{- if include "forebay.drains" . }}
terminationGracePeriodSeconds: {{ add (int .root.Values.target.preStopSeconds) 60 }}
{{- end }}
{{- end -}}

{{- define "forebay.drainMounts" -}}
{{- if include "forebay.drains" . }}
- name: kubernetes
  mountPath: /run/secrets/kubernetes
  readOnly: true
{{- end }}
{{- end -}}

{{/* A token of the pods' own account, for one GET of the StatefulSet. */}}
{{- define "forebay.drainVolumes" -}}
{{- if include "forebay.drains" . }}
- name: kubernetes
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
{{- end }}
{{- end -}}
