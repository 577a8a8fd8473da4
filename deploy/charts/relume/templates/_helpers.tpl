{{- define "relume.fullname" -}}
{{- .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-relume" .Release.Name) (contains "relume" .Release.Name)) | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* Of {root, component}: what an object is called. The one process is called as the release. */}}
{{- define "relume.name" -}}
{{ include "relume.fullname" .root }}{{ if ne .component "up" }}-{{ .component }}{{ end }}
{{- end }}

{{- define "relume.selector" -}}
app.kubernetes.io/name: relume
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "relume.labels" -}}
{{ include "relume.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "relume.components" -}}
{{ ternary "gateway autoscaler cluster" "up" (not (empty .Values.kafka.servers)) }}
{{- end }}

{{- /* Which component acts on the API server. */}}
{{- define "relume.actor" -}}
{{ include "relume.name" (dict "root" . "component" (ternary "cluster" "up" (not (empty .Values.kafka.servers)))) }}
{{- end }}

{{- /* Which component takes requests. */}}
{{- define "relume.server" -}}
{{ ternary "gateway" "up" (not (empty .Values.kafka.servers)) }}
{{- end }}

{{- define "relume.adminSecret" -}}
{{ .Values.admin.tokenSecret.name | default (printf "%s-admin" (include "relume.fullname" .)) }}
{{- end }}

{{- define "relume.peerSecret" -}}
{{ .Values.peers.secret.name | default (printf "%s-peers" (include "relume.fullname" .)) }}
{{- end }}

{{- /* Whether agents see GPUs and may ask the kubelet whose they are: its socket is root's. */}}
{{- define "relume.asksKubelet" -}}
{{- with .Values.agent }}
{{- if and .enabled .runtimeClassName .kubeletPath (eq (int .runAsUser) 0) }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* Of {variable, secret, file}: an environment variable that names a file of the secrets' folder. */}}
{{- define "relume.secretFile" -}}
{{- if .secret }}
- {name: {{ .variable }}, value: /etc/relume/{{ .file }}}
{{- end }}
{{- end }}

{{- define "relume.source" -}}
{{- if .secret }}
- secret: {name: {{ .secret }}, items: [{key: {{ .key }}, path: {{ .file }}}]}
{{- end }}
{{- end }}

{{- /* The settings of the event log on Kafka. */}}
{{- define "relume.kafka" -}}
{{- with .Values.kafka }}
- {name: RELUME_EVENTS, value: {{ printf "kafka://%s" (join "," .servers) | quote }}}
- {name: RELUME_KAFKA_SECURITY, value: {{ .security }}}
{{- with .replication }}
- {name: RELUME_KAFKA_REPLICATION, value: {{ . | quote }}}
{{- end }}
{{- with .saslMechanism }}
- {name: RELUME_KAFKA_SASL_MECHANISM, value: {{ . | quote }}}
{{- end }}
{{- with .username }}
- {name: RELUME_KAFKA_USERNAME, value: {{ . | quote }}}
{{- end }}
{{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_PASSWORD_FILE" "secret" .passwordSecret.name "file" "kafka-password") }}
{{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_TOKEN_FILE" "secret" .tokenSecret.name "file" "kafka-token") }}
{{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_TLS_CA" "secret" .caSecret.name "file" "kafka-ca.crt") }}
{{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_TLS_CERT" "secret" .certSecret "file" "kafka-tls.crt") }}
{{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_TLS_KEY" "secret" .certSecret "file" "kafka-tls.key") }}
{{- end }}
{{- end }}

{{- define "relume.kafkaSources" -}}
{{- with .Values.kafka }}
{{- include "relume.source" (dict "secret" .passwordSecret.name "key" .passwordSecret.key "file" "kafka-password") }}
{{- include "relume.source" (dict "secret" .tokenSecret.name "key" .tokenSecret.key "file" "kafka-token") }}
{{- include "relume.source" (dict "secret" .caSecret.name "key" .caSecret.key "file" "kafka-ca.crt") }}
{{- include "relume.source" (dict "secret" .certSecret "key" "tls.crt" "file" "kafka-tls.crt") }}
{{- include "relume.source" (dict "secret" .certSecret "key" "tls.key" "file" "kafka-tls.key") }}
{{- end }}
{{- end }}

{{- /* Of {root, component}: the pod template of a component. */}}
{{- define "relume.pod" -}}
{{- $root := .root }}
{{- $values := $root.Values }}
{{- $component := .component }}
{{- $own := index $values $component }}
{{- $serves := has $component (list "up" "gateway") }}
{{- $decides := has $component (list "up" "autoscaler") }}
{{- $acts := has $component (list "up" "cluster") }}
{{- $agent := eq $component "agent" }}
{{- $user := ternary (int ($own.runAsUser | default 0)) 65532 $agent }}
{{- $drains := ternary (int $values.drainBoundSeconds) 0 $serves }}
{{- $preStop := ternary (int $values.preStopSeconds) 0 $serves }}
metadata:
  labels:
    {{- include "relume.selector" . | nindent 4 }}
    {{- with $own.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $own.podAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "relume.name" . }}
  automountServiceAccountToken: {{ $acts }}
  # a Service called relume-admin would set RELUME_ADMIN_PORT to tcp://…
  enableServiceLinks: false
  # preStop, the drain bound, and 15 s to end
  terminationGracePeriodSeconds: {{ add $drains $preStop 15 }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $own $field }}
  {{ $field }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $own.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: {{ gt $user 0 }}
    runAsUser: {{ $user }}
    runAsGroup: {{ $user }}
    {{- if not $agent }}
    fsGroup: 65532
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: relume
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default $root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: [relume, {{ $component }}]
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: RELUME_DATA_DIR, value: /data}
        - {name: RELUME_LOG_LEVEL, value: {{ $values.logLevel }}}
        - {name: RELUME_LOG_FORMAT, value: {{ $values.logFormat }}}
        - {name: RELUME_ADMIN_HOST, value: {{ $values.listenHost | quote }}}
        - {name: RELUME_ADMIN_TOKEN_FILE, value: /etc/relume/admin-token}
        {{- if $agent }}
        # weights are of a node, so it is called as the node is
        - name: RELUME_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- if $own.runtimeClassName }}
        # all GPUs, to look at: none is taken from the device plugin
        - {name: NVIDIA_VISIBLE_DEVICES, value: all}
        - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
        {{- end }}
        {{- if include "relume.asksKubelet" $root }}
        - {name: RELUME_POD_RESOURCES, value: /pod-resources}
        {{- end }}
        {{- with $own.capacity }}
        - {name: RELUME_CACHE_CAPACITY, value: {{ . | quote }}}
        {{- end }}
        {{- else if ne $component "up" }}
        - {name: RELUME_NODE_NAME, value: $(POD_NAME)}
        {{- end }}
        {{- if and $agent $values.kafka.servers }}
        # agents of other nodes read its weights, before they ask where those come from
        {{- if contains ":" $values.listenHost }}
        - {name: RELUME_CACHE_PEER_ADDRESS, value: "[$(POD_IP)]:8083"}
        {{- else }}
        - {name: RELUME_CACHE_PEER_ADDRESS, value: "$(POD_IP):8083"}
        {{- end }}
        - {name: RELUME_CACHE_PEER_TOKEN_FILE, value: /etc/relume/peer-secret}
        {{- end }}
        {{- if $values.kafka.servers }}
        {{- include "relume.kafka" $root | nindent 8 }}
        {{- else if $agent }}
        # the log of the one process is a file of its own: this agent fetches when it is asked, and tells nobody
        - {name: RELUME_EVENTS, value: "memory:"}
        {{- end }}
        {{- if $serves }}
        - {name: RELUME_GATEWAY_HOST, value: {{ $values.listenHost | quote }}}
        - {name: RELUME_DRAIN_BOUND, value: {{ printf "%ds" $drains }}}
        {{- end }}
        {{- if eq $component "gateway" }}
        {{- if contains ":" $values.listenHost }}
        - {name: RELUME_PEER_ADDRESS, value: "[$(POD_IP)]:8082"}
        {{- else }}
        - {name: RELUME_PEER_ADDRESS, value: "$(POD_IP):8082"}
        {{- end }}
        - {name: RELUME_PEER_SECRET_FILE, value: /etc/relume/peer-secret}
        {{- end }}
        {{- if $acts }}
        - {name: RELUME_CLUSTER, value: kubernetes}
        - name: RELUME_KUBE_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        {{- $kinds := list }}
        {{- range $values.rbac.enrolled }}{{ $kinds = append $kinds (printf "%s.%s" .resource .group) }}{{ end }}
        - {name: RELUME_KUBE_ENROLLED, value: {{ join "," $kinds | quote }}}
        {{- if $values.agent.enabled }}
        - {name: RELUME_KUBE_WEIGHTS_CLAIM, value: {{ include "relume.fullname" $root }}-weights}
        {{- end }}
        {{- end }}
        {{- if $decides }}
        {{- with $values.prometheus.url }}
        - {name: RELUME_PROMETHEUS, value: {{ . | quote }}}
        {{- end }}
        {{- include "relume.secretFile" (dict "variable" "RELUME_PROMETHEUS_SERVERS" "secret" $values.prometheus.serversSecret.name "file" "prometheus-servers.yaml") | nindent 8 }}
        {{- include "relume.secretFile" (dict "variable" "RELUME_KAFKA_CLUSTERS" "secret" $values.kafka.clustersSecret.name "file" "kafka-clusters.yaml") | nindent 8 }}
        {{- end }}
        {{- with $own.env }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        {{- if $serves }}
        - {name: http, containerPort: 8080}
        {{- end }}
        - {name: admin, containerPort: 8081}
        {{- if eq $component "gateway" }}
        - {name: peers, containerPort: 8082}
        {{- else if and $agent $values.kafka.servers }}
        - {name: peers, containerPort: 8083}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: admin}
        periodSeconds: 2
        failureThreshold: 60
      # a standby is healthy, and takes no requests: only who serves is asked whether it can
      readinessProbe:
        httpGet: {path: {{ ternary "/readyz" "/healthz" $serves }}, port: admin}
        periodSeconds: 2
        timeoutSeconds: 2
      livenessProbe:
        httpGet: {path: /healthz, port: admin}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      {{- if gt $preStop 0 }}
      lifecycle:
        preStop: {exec: {command: [sleep, {{ $preStop | quote }}]}}
      {{- end }}
      resources: {{ toYaml $own.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: data, mountPath: /data}
        {{- if $agent }}
        - {name: weights, mountPath: /data/weights}
        {{- if include "relume.asksKubelet" $root }}
        - {name: kubelet, mountPath: /pod-resources, readOnly: true}
        {{- end }}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        - {name: secrets, mountPath: /etc/relume, readOnly: true}
        {{- with $own.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: data
      {{- if eq $component "up" }}
      persistentVolumeClaim: {claimName: {{ $values.persistence.existingClaim | default (include "relume.name" .) }}}
      {{- else }}
      emptyDir: {sizeLimit: 1Gi}
      {{- end }}
    {{- if $agent }}
    - name: weights
      persistentVolumeClaim: {claimName: {{ include "relume.fullname" $root }}-weights}
    {{- if include "relume.asksKubelet" $root }}
    - name: kubelet
      persistentVolumeClaim: {claimName: {{ include "relume.fullname" $root }}-kubelet, readOnly: true}
    {{- end }}
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: 256Mi}
    - name: secrets
      projected:
        # 0440, in the one way that YAML 1.1 and 1.2 read alike
        defaultMode: 288
        sources:
          - secret: {name: {{ include "relume.adminSecret" $root }}, items: [{key: {{ $values.admin.tokenSecret.key }}, path: admin-token}]}
          {{- if or (eq $component "gateway") (and $agent $values.kafka.servers) }}
          - secret: {name: {{ include "relume.peerSecret" $root }}, items: [{key: {{ $values.peers.secret.key }}, path: peer-secret}]}
          {{- end }}
          {{- if ne $component "up" }}{{ include "relume.kafkaSources" $root | nindent 10 }}{{ end }}
          {{- if $decides }}
          {{- include "relume.source" (dict "secret" $values.prometheus.serversSecret.name "key" $values.prometheus.serversSecret.key "file" "prometheus-servers.yaml") | nindent 10 }}
          {{- include "relume.source" (dict "secret" $values.kafka.clustersSecret.name "key" $values.kafka.clustersSecret.key "file" "kafka-clusters.yaml") | nindent 10 }}
          {{- end }}
    {{- with $own.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
