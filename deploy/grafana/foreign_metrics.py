"""Metrics that panels use and that nodes do not export, with their exporter."""

from metric_table import Metric

POD = ("pod", "container")


def _gauge(name: str, labels: tuple[str, ...], unit: str, meaning: str) -> Metric:
    return Metric(name, "gauge", labels, unit, meaning)


PROMETHEUS = [
    _gauge("up", (), "0 or 1", "Whether the last scrape of the node succeeded."),
    _gauge("ALERTS", ("alertname", "alertstate", "severity"), "0 or 1", "Alerts that wait or fire."),
]
KUBE_STATE_METRICS = [
    _gauge("kube_statefulset_replicas", ("statefulset",), "pods", "Pods that the StatefulSet wants."),
    _gauge(
        "kube_statefulset_status_replicas_ready",
        ("statefulset",),
        "pods",
        "Pods of the StatefulSet that are ready.",
    ),
    Metric(
        "kube_pod_container_status_restarts_total", "counter", POD, "restarts", "Restarts of the container."
    ),
    _gauge(
        "kube_pod_container_status_last_terminated_reason",
        (*POD, "reason"),
        "0 or 1",
        "Why the container ended the last time.",
    ),
    _gauge(
        "kube_pod_container_resource_requests",
        (*POD, "resource"),
        "cores",
        "CPU or memory that the container requests.",
    ),
    _gauge(
        "kube_pod_container_resource_limits",
        (*POD, "resource"),
        "bytes",
        "Limit of CPU or memory of the container.",
    ),
    _gauge(
        "kube_pod_spec_volumes_persistentvolumeclaims_info",
        ("pod", "persistentvolumeclaim"),
        "1",
        "Claims that a pod mounts.",
    ),
]
KUBELET = [
    _gauge(
        "kubelet_volume_stats_available_bytes",
        ("persistentvolumeclaim",),
        "bytes",
        "Free bytes of the volume of a claim.",
    ),
    _gauge(
        "kubelet_volume_stats_capacity_bytes",
        ("persistentvolumeclaim",),
        "bytes",
        "Size of the volume of a claim.",
    ),
    _gauge(
        "container_memory_working_set_bytes",
        POD,
        "bytes",
        "Memory of the container with the page cache that the kernel cannot free at once.",
    ),
    Metric(
        "container_network_receive_bytes_total", "counter", ("pod",), "bytes", "Bytes that the pod received."
    ),
    Metric(
        "container_network_transmit_bytes_total", "counter", ("pod",), "bytes", "Bytes that the pod sent."
    ),
]
FOREIGN = {metric.name: metric for metric in (*PROMETHEUS, *KUBE_STATE_METRICS, *KUBELET)}
