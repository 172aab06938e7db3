{{- define "rmqha.labels" -}}
app.kubernetes.io/name: rmqha
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rmqha.networks" -}}
{{ join "," .Values.podNetworks }}
{{- end }}

{{- /* The pods of the name servers by name and port. A pod that comes back has another address and the same name. */}}
{{- define "rmqha.peers" -}}
{{- $root := index . 0 }}{{ $port := index . 1 }}{{ $numbered := index . 2 }}
{{- $peers := list }}
{{- range $number := until (int $root.Values.namesrv.replicas) }}
{{- $name := printf "%s-namesrv-%d.%s-namesrv.%s.svc:%d" $root.Release.Name $number $root.Release.Name $root.Release.Namespace $port }}
{{- $peers = append $peers (ternary (printf "n%d-%s" $number $name) $name $numbered) }}
{{- end }}
{{- join ";" $peers }}
{{- end }}

{{- define "rmqha.namesrvProperties" -}}
listenPort=9876
kvConfigPath=/var/lib/rmqha/kvConfig.json
enableControllerInNamesrv=true
controllerDLegerPeers={{ include "rmqha.peers" (list . 9878 true) }}
controllerStorePath=/var/lib/rmqha/controller
controllerAllowedBrokers={{ include "rmqha.networks" . }}
metricsPort=5558
{{- include "rmqha.properties" .Values.namesrv.properties }}
{{- end }}

{{- define "rmqha.brokerProperties" -}}
{{- $root := index . 0 -}}
brokerClusterName={{ $root.Values.clusterName }}
brokerName={{ index . 1 }}
namesrvAddr={{ include "rmqha.peers" (list $root 9876 false) }}
enableControllerMode=true
controllerAddr={{ include "rmqha.peers" (list $root 9878 false) }}
allAckInSyncStateSet=true
haAllowedSlaves={{ include "rmqha.networks" $root }}
haTrustedMasters={{ include "rmqha.networks" $root }}
storePathRootDir=/var/lib/rmqha/store
metricsPort=5557
{{- include "rmqha.properties" $root.Values.broker.properties }}
{{- end }}

{{- define "rmqha.properties" -}}
{{- range $key, $value := . }}
{{ $key }}={{ $value }}
{{- end }}
{{- end }}

{{- /* What the pods of name servers and brokers have in common: (root, labels of its set). */}}
{{- define "rmqha.pod" -}}
{{- $root := index . 0 }}{{ $labels := index . 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 3000
  runAsGroup: 3000
  fsGroup: 3000
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
affinity:
  podAntiAffinity:
    {{- if eq $root.Values.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- $labels | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- $labels | nindent 14 }}
    {{- end }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $labels | nindent 8 }}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* (root, program, what only this pod knows of itself). The properties are put together at each start of the container: the
       lines of the config map, then those of the secret. exec: SIGTERM reaches the server. */}}
{{- define "rmqha.container" -}}
{{- $root := index . 0 }}{{ $program := index . 1 }}{{ $identity := index . 2 -}}
name: {{ $program }}
image: {{ $root.Values.image | quote }}
imagePullPolicy: {{ $root.Values.imagePullPolicy }}
command:
  - /bin/sh
  - -euc
  - |
    umask 077
    cat /etc/rmqha/config/{{ $program }}.properties > /run/rmqha/{{ $program }}.properties
    if [ -e /etc/rmqha/secret/{{ $program }}.properties ]; then
      cat /etc/rmqha/secret/{{ $program }}.properties >> /run/rmqha/{{ $program }}.properties
    fi
    exec rmqha-{{ $program }} --config /run/rmqha/{{ $program }}.properties{{ range $identity }} --set "{{ . }}"{{ end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
startupProbe: # a start after a crash reads the log: an hour
  httpGet: {path: /livez, port: status}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 360
livenessProbe: # the process hangs: nothing else is a reason to kill it
  httpGet: {path: /livez, port: status}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe: # the next pod may be restarted; it opens and closes no way to this one
  httpGet: {path: /readyz, port: status}
  periodSeconds: 5
  timeoutSeconds: 5
volumeMounts:
  - {name: data, mountPath: /var/lib/rmqha}
  - {name: config, mountPath: /etc/rmqha/config, readOnly: true}
  {{- if $root.Values.existingSecret }}
  - {name: secret, mountPath: /etc/rmqha/secret, readOnly: true}
  {{- end }}
  - {name: run, mountPath: /run/rmqha}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "rmqha.volumes" -}}
{{- $root := index . 0 }}{{ $config := index . 1 -}}
- {name: config, configMap: {name: {{ $config }}}}
{{- if $root.Values.existingSecret }}
- {name: secret, secret: {secretName: {{ $root.Values.existingSecret }}, defaultMode: 0440}}
{{- end }}
- {name: run, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: tmp, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
{{- end }}

{{- define "rmqha.claim" -}}
{{- $root := index . 0 }}{{ $size := index . 1 -}}
- metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with $root.Values.storageClassName }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ $size }}}}
{{- end }}
