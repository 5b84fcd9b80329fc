{{- define "sendonce.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "sendonce" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-sendonce" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a selector goes by: never changes for a release. */}}
{{- define "sendonce.selector" -}}
app.kubernetes.io/name: sendonce
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sendonce.labels" -}}
{{ include "sendonce.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sendonce.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
{{- end -}}

{{/* Nothing runs without these; said before anything is made. */}}
{{- define "sendonce.check" -}}
{{- if not (or .Values.database.existingSecret .Values.database.url) -}}
{{- fail "set database.existingSecret to a secret with the key database-url" -}}
{{- end -}}
{{- if not (or .Values.keys.existingSecret .Values.keys.content) -}}
{{- fail "set keys.existingSecret to a secret with the key sendonce.keys (or use --set-file keys.content=sendonce.keys)" -}}
{{- end -}}
{{- if not .Values.publicUrl -}}
{{- fail "set publicUrl, as in https://sendonce.example.com" -}}
{{- end -}}
{{- end -}}

{{/* Who runs it: the image's user, and nothing besides. */}}
{{- define "sendonce.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# The mounted key file and secrets are readable by this group.
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sendonce.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The environment wins over sendonce.toml: what the probes, the mounts and the service rely on. */}}
{{- define "sendonce.env" -}}
- name: DATABASE_URL_FILE
  value: /run/secrets/sendonce-database/database-url
- name: SENDONCE_SERVER__DATA_DIR
  value: /var/lib/sendonce
- name: SENDONCE_SERVER__LISTEN
  value: "0.0.0.0:3000"
# Health and metrics are not behind the service.
- name: SENDONCE_SERVER__HEALTH_LISTEN
  value: "0.0.0.0:9090"
- name: SENDONCE_SERVER__PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
- name: SENDONCE_SERVER__ENVIRONMENT
  value: {{ .Values.environment | quote }}
{{- end -}}

{{/* The data folder holds nothing that lasts but the key file, which is laid into it. */}}
{{- define "sendonce.mounts" -}}
- name: data
  mountPath: /var/lib/sendonce
- name: keys
  mountPath: /var/lib/sendonce/sendonce.keys
  subPath: sendonce.keys
  readOnly: true
- name: database
  mountPath: /run/secrets/sendonce-database
  readOnly: true
{{- range $at, $name := .Values.secretMounts }}
- name: secret-{{ $at }}
  mountPath: /run/secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* dict "root" $ "suffix" "": the secrets that this chart makes have one copy for the hook, see secret.yaml. */}}
{{- define "sendonce.volumes" -}}
{{- $own := printf "%s%s" (include "sendonce.fullname" .root) .suffix -}}
- name: data
  emptyDir:
    sizeLimit: 64Mi
- name: keys
  secret:
    secretName: {{ default $own .root.Values.keys.existingSecret }}
    defaultMode: 0440
    items:
      - key: sendonce.keys
        path: sendonce.keys
- name: database
  secret:
    secretName: {{ default $own .root.Values.database.existingSecret }}
    defaultMode: 0440
    items:
      - key: database-url
        path: database-url
{{- range $at, $name := .root.Values.secretMounts }}
- name: secret-{{ $at }}
  secret:
    secretName: {{ $name }}
    defaultMode: 0440
{{- end }}
{{- end -}}
