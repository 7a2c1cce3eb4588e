"""The dashboard of a release of the chart: pods, their CPU and memory, volumes and traffic.

It also needs kube-state-metrics and the metrics of the kubelet, which the usual monitoring of Kubernetes has.
"""

from dataclasses import replace

from cluster_dashboard import NODE
from dashboard import NODE_VARIABLES, Dashboard
from panel import GREEN, ORANGE, RATIO, RED, SECONDS, SHORT, Panel, Query, Row
from queries import one, quantile, rate, share

# Joins series of other exporters with the pods of the chosen nodes.
OF_PODS = " * on (namespace, pod) group_left () max by (namespace, pod) (forebay_build_info{NODES})"
OF_CLAIMS = (
    " * on (namespace, persistentvolumeclaim) group_left (pod) max by (namespace, persistentvolumeclaim, pod) ("
    "kube_pod_spec_volumes_persistentvolumeclaims_info{NAMESPACE}"
    " * on (namespace, pod) group_left () max by (namespace, pod) (forebay_build_info{NODES}))"
)
SETS = 'statefulset=~".+-(gateway|target)"'
CONTAINERS = 'container=~"gateway|target"'

PODS = Row(
    "Pods",
    (
        Panel(
            "Pods that are not scraped",
            one("count(up{NODES} == 0) or vector(0)"),
            kind="stat",
            thresholds=((None, GREEN), (1, RED)),
            width=6,
        ),
        Panel(
            "Pods that are ready",
            (
                Query(
                    "sum by (statefulset) (kube_statefulset_status_replicas_ready{NAMESPACE," + SETS + "})",
                    "{{statefulset}} ready",
                ),
                Query(
                    "sum by (statefulset) (kube_statefulset_replicas{NAMESPACE," + SETS + "})",
                    "{{statefulset}} wanted",
                ),
            ),
            width=6,
        ),
        Panel(
            "Restarts of containers",
            one(
                "increase(kube_pod_container_status_restarts_total{NAMESPACE,"
                + CONTAINERS
                + "}[1h])"
                + OF_PODS,
                "{{pod}}",
            ),
            note="In the last hour.",
            width=6,
        ),
        Panel(
            "Last end of containers",
            one(
                "kube_pod_container_status_last_terminated_reason{NAMESPACE,"
                + CONTAINERS
                + "}"
                + OF_PODS
                + " > 0",
            ),
            kind="table",
            note="OOMKilled: the limit of memory is too low.",
            width=6,
            columns=("pod", "reason"),
        ),
        Panel(
            "Versions",
            one("forebay_build_info{NODES}"),
            kind="table",
            columns=("namespace", "instance", "role", "version"),
        ),
        Panel(
            "Time since the start",
            one("time() - process_start_time_seconds{NODES}", "{{instance}}"),
            unit=SECONDS,
        ),
        Panel(
            "Nodes by state",
            one(
                "max by (cluster, namespace, role, state) (forebay_cluster_nodes{CLUSTER})",
                "{{role}} {{state}}",
            ),
            note="As the cluster counts them: a pod that runs may be down or drained here.",
        ),
    ),
)

CPU_AND_MEMORY = Row(
    "CPU and memory",
    (
        Panel(
            "CPU by pod",
            one("rate(process_cpu_seconds_total{NODES}[RATE])", "{{instance}}"),
            note="1 is one core.",
        ),
        Panel(
            "CPU of the request by pod",
            one(
                "rate(process_cpu_seconds_total{NODES}[RATE]) / on (namespace, pod) group_left () "
                'kube_pod_container_resource_requests{NAMESPACE,resource="cpu",' + CONTAINERS + "}",
                "{{instance}}",
            ),
            note="Above 100 % the pod uses cores that others did not want. The chart sets no limit of CPU.",
            unit=RATIO,
        ),
        Panel(
            "Memory by pod",
            one("process_resident_memory_bytes{NODES}", "{{instance}}"),
            note="Without the page cache.",
        ),
        Panel(
            "Memory of the limit by pod",
            one(
                "process_resident_memory_bytes{NODES} / on (namespace, pod) group_left () "
                'kube_pod_container_resource_limits{NAMESPACE,resource="memory",' + CONTAINERS + "}",
                "{{instance}}",
            ),
            unit=RATIO,
            thresholds=((None, GREEN), (0.8, ORANGE), (0.95, RED)),
        ),
        Panel(
            "Working set by pod",
            one("container_memory_working_set_bytes{NAMESPACE," + CONTAINERS + "}" + OF_PODS, "{{pod}}"),
            note="At the limit the kernel ends the pod.",
        ),
        Panel(
            "Open files and threads",
            (
                Query("process_open_fds{NODES}", "{{instance}} files"),
                Query("process_threads{NODES}", "{{instance}} threads"),
            ),
            unit=SHORT,
        ),
    ),
)

VOLUMES = Row(
    "Volumes",
    (
        Panel(
            "Free share of the volumes",
            one(
                "kubelet_volume_stats_available_bytes{NAMESPACE} / kubelet_volume_stats_capacity_bytes{NAMESPACE}"
                + OF_CLAIMS,
                "{{persistentvolumeclaim}}",
            ),
            note="Also those of gateways.",
            unit=RATIO,
            limit=1,
            thresholds=((None, RED), (0.05, GREEN)),
        ),
        Panel(
            "Free share of the disks of targets",
            one("forebay_disk_free_bytes{NODES} / forebay_disk_size_bytes{NODES}", "{{instance}} {{disk}}"),
            unit=RATIO,
            limit=1,
        ),
        Panel(
            "Use of the budget by target",
            one("forebay_store_bytes{NODES} / forebay_store_budget_bytes{NODES}", "{{instance}}"),
            unit=RATIO,
            thresholds=((None, GREEN), (0.93, RED)),
        ),
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Received by pod",
            one(
                "sum by (namespace, pod) (rate(container_network_receive_bytes_total{NAMESPACE}[RATE]))"
                + OF_PODS,
                "{{pod}}",
            ),
        ),
        Panel(
            "Sent by pod",
            one(
                "sum by (namespace, pod) (rate(container_network_transmit_bytes_total{NAMESPACE}[RATE]))"
                + OF_PODS,
                "{{pod}}",
            ),
        ),
        Panel("Requests by pod", one(rate("forebay_http_requests_total", NODE), "{{instance}}")),
        Panel(
            "Share of errors by pod",
            one(share("forebay_http_requests_total", 'result="error"', NODE), "{{instance}}"),
            unit=RATIO,
        ),
        Panel(
            "Slowest 1 % of first bytes by pod",
            one(quantile(0.99, "forebay_http_first_byte_seconds", NODE), "{{instance}}"),
        ),
        Panel(
            "Requests in progress by pod",
            one("sum by (namespace, instance) (forebay_http_requests_in_flight{NODES})", "{{instance}}"),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="forebay-kubernetes",
    title="Forebay / Kubernetes",
    description="Pods, CPU, memory, volumes and traffic of a release of the chart.",
    # All namespaces are those that have nodes: other exporters have series of all namespaces.
    variables=tuple(replace(v, all_value=None) if v.name == "namespace" else v for v in NODE_VARIABLES),
    rows=(PODS, CPU_AND_MEMORY, VOLUMES, TRAFFIC),
)
