{{- define "ottla.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains "ottla" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-ottla" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ottla.account" -}}
{{ .Values.serviceAccount.name | default (include "ottla.name" .) }}
{{- end }}

{{- /* The Lease by which the operators of a release elect the active one. */}}
{{- define "ottla.lease" -}}
{{ include "ottla.name" . }}-operator
{{- end }}

{{- /* Whether the platform assigns user ids to pods, as OpenShift does. */}}
{{- define "ottla.assignsUid" -}}
{{- if eq (toString .Values.platformAssignsUid) "auto" }}{{ .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- else }}{{ .Values.platformAssignsUid }}{{ end }}
{{- end }}

{{- define "ottla.selector" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ottla.labels" -}}
{{ include "ottla.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
