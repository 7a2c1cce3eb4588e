{{/* The StatefulSet of one role: dict "root" $ "role" "gateway" */}}
{{- define "forebay.statefulset" -}}
{{- $ := .root -}}
{{- $role := .role -}}
{{- $v := index $.Values $role -}}
{{- $full := include "forebay.fullname" $ -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "forebay.metadata" (dict "root" $ "suffix" (printf "-%s" $role) "component" $role "annotations" (dict "kube-score/ignore" (include "forebay.unscored" $))) | nindent 2 }}
spec:
  serviceName: {{ $full }}-{{ $role }}-headless
  replicas: {{ $v.replicas }}
  # All at once: gateways need a majority before any of them is ready. Updates go one by one anyway.
  podManagementPolicy: Parallel
  updateStrategy:
    type: RollingUpdate
  minReadySeconds: 5
  revisionHistoryLimit: 5
  persistentVolumeClaimRetentionPolicy:
    {{- toYaml $v.volumeRetention | nindent 4 }}
  selector:
    matchLabels:
      {{- include "forebay.selectorLabels" $ | nindent 6 }}
      app.kubernetes.io/component: {{ $role }}
  template:
    metadata:
      labels:
        {{- include "forebay.labels" $ | nindent 8 }}
        app.kubernetes.io/component: {{ $role }}
        {{- if and (eq $role "target") $.Values.backends.azure.enabled $.Values.backends.azure.workloadIdentity }}
        azure.workload.identity/use: "true"
        {{- end }}
        {{- with $v.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ include (printf "forebay.%s.toml" $role) $ | sha256sum }}
        {{- if and $.Values.s3.keys (not $.Values.s3.existingSecret) }}
        checksum/s3-keys: {{ include "forebay.s3Keys" $ | sha256sum }}
        {{- end }}
        {{- with $v.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "forebay.serviceAccountName" $ }}
      automountServiceAccountToken: false
      # Kubernetes would set FOREBAY_PORT and others like settings of ours.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
      {{- with $v.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      securityContext:
        {{- toYaml $.Values.podSecurityContext | nindent 8 }}
      {{- $before := include (printf "forebay.%s.initContainers" $role) $ }}
      {{- if or $before $v.initContainers }}
      initContainers:
        {{- $before | nindent 8 }}
        {{- include "forebay.containers" (dict "root" $ "containers" $v.initContainers) | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $role }}
          image: {{ include "forebay.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          args: [{{ $role }}, --config, /etc/forebay/{{ $role }}.toml]
          ports:
            - name: http
              containerPort: {{ include "forebay.port" . }}
          env:
            # The pod's name is the node's id: it stays over restarts, and so does the placement.
            - name: FOREBAY_NODE__ID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: FOREBAY_LISTEN__ADVERTISE
              value: http://$(FOREBAY_NODE__ID).{{ include "forebay.podDomain" . }}:{{ include "forebay.port" . }}
            # For commands run by kubectl exec.
            - name: FOREBAY_ENDPOINT
              {{- if and (eq $role "gateway") (include "forebay.tlsSecret" $) }}
              value: https://$(FOREBAY_NODE__ID).{{ include "forebay.podDomain" . }}:7400
              {{- else }}
              value: {{ eq $role "gateway" | ternary "http://127.0.0.1:7400" (include "forebay.endpoint" $) }}
              {{- end }}
            {{- include "forebay.tlsEnv" $ | nindent 12 }}
            {{- include "forebay.caEnv" $ | nindent 12 }}
            {{- include "forebay.s3Env" $ | nindent 12 }}
            {{- if eq $role "gateway" }}
            # Where `forebay auth login` keeps its token.
            - name: XDG_CONFIG_HOME
              value: /run/forebay
            {{- end }}
            {{- if eq $role "target" }}
            {{- include "forebay.backendEnv" $ | nindent 12 }}
            {{- end }}
            {{- with $v.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          startupProbe:
            httpGet: {{ include "forebay.probe" (dict "root" $ "path" "/healthz") }}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: {{ div (add (int $v.startupSeconds) 4) 5 }}
            {{- include "forebay.probeGrace" . | nindent 12 }}
          # Only whether the process answers: a node that waits for others must not be killed for it.
          livenessProbe:
            httpGet: {{ include "forebay.probe" (dict "root" $ "path" "/healthz") }}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
            {{- include "forebay.probeGrace" . | nindent 12 }}
          # Whether it is in the cluster and may be sent requests.
          readinessProbe:
            httpGet: {{ include "forebay.probe" (dict "root" $ "path" "/readyz") }}
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 2
          {{- include "forebay.lifecycle" . | nindent 10 }}
          securityContext:
            {{- toYaml $.Values.securityContext | nindent 12 }}
          resources:
            {{- toYaml $v.resources | nindent 12 }}
          volumeMounts:
            - name: config
              mountPath: /etc/forebay
              readOnly: true
            {{- include "forebay.joinMounts" . | nindent 12 }}
            {{- include "forebay.drainMounts" . | nindent 12 }}
            {{- if include "forebay.tlsSecret" $ }}
            - name: tls
              mountPath: /run/secrets/tls
              readOnly: true
            {{- end }}
            {{- include "forebay.caMounts" $ | nindent 12 }}
            {{- include (printf "forebay.%s.mounts" $role) $ | nindent 12 }}
            {{- include "forebay.authMounts" . | nindent 12 }}
            {{- with $v.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- include "forebay.containers" (dict "root" $ "containers" $v.sidecars) | nindent 8 }}
      volumes:
        - name: config
          configMap:
            name: {{ $full }}-{{ $role }}
        {{- include "forebay.joinVolumes" . | nindent 8 }}
        {{- include "forebay.drainVolumes" . | nindent 8 }}
        {{- with include "forebay.tlsSecret" $ }}
        - name: tls
          secret:
            secretName: {{ . }}
            defaultMode: 0440
            items:
              - {key: tls.crt, path: tls.crt}
              - {key: tls.key, path: tls.key}
              - {key: ca.crt, path: ca.crt}
        {{- end }}
        {{- include "forebay.caVolumes" $ | nindent 8 }}
        {{- include (printf "forebay.%s.volumes" $role) $ | nindent 8 }}
        {{- include "forebay.authVolumes" . | nindent 8 }}
        {{- with $v.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $v.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include (printf "forebay.%s.affinity" $role) $ }}
      affinity:
        {{- . | nindent 8 }}
      {{- end }}
      {{- $spread := list (list "kubernetes.io/hostname" $v.topologySpread.host) (list "topology.kubernetes.io/zone" $v.topologySpread.zone) }}
      {{- if or $v.topologySpread.host $v.topologySpread.zone }}
      topologySpreadConstraints:
        {{- range $spread }}
        {{- if index . 1 }}
        - topologyKey: {{ index . 0 }}
          maxSkew: 1
          whenUnsatisfiable: {{ index . 1 }}
          labelSelector:
            matchLabels:
              {{- include "forebay.selectorLabels" $ | nindent 14 }}
              app.kubernetes.io/component: {{ $role }}
        {{- end }}
        {{- end }}
      {{- end }}
  {{- with include (printf "forebay.%s.claims" $role) $ }}
  volumeClaimTemplates:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Containers of the values: dict "root" $ "containers" list. Each gets the chart's securityContext unless it
has its own. */}}
{{- define "forebay.containers" -}}
{{- range .containers }}
{{- $container := merge (dict) . (dict "securityContext" $.root.Values.securityContext) }}
{{- if hasKey . "securityContext" }}{{ $container = . }}{{ end }}
- {{ toYaml $container | indent 2 | trim }}
{{- end }}
{{- end -}}

{{/* One claim: dict "root" $ "role" r "name" n "size" s "storageClass" c. No label that changes with
a version: Kubernetes refuses to change these. */}}
{{- define "forebay.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
    labels:
      {{- include "forebay.selectorLabels" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .role }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .size }}
{{- end -}}
