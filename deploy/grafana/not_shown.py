"""Metrics that are deliberately on no dashboard and in no alert, each with its reason."""

_SUM = (
    "a sum over the targets, for a Prometheus that scrapes one gateway alone; panels add up the targets' own"
)

NOT_SHOWN = {
    "forebay_cluster_backend_requests_total": _SUM,
    "forebay_cluster_backend_bytes_total": _SUM,
    "forebay_cluster_cloud_requests_total": _SUM,
    "forebay_cluster_cloud_bytes_total": _SUM,
    "forebay_cluster_egress_saved_bytes_total": _SUM,
    "forebay_cluster_get_bytes_total": _SUM,
    "forebay_cluster_batch_entries_total": _SUM,
    "forebay_cluster_damaged_total": _SUM,
    "forebay_cluster_healed_total": _SUM,
    "forebay_cluster_lost_total": _SUM,
    "forebay_cluster_disks": _SUM,
    "process_virtual_memory_bytes": "address space, not memory: no value of it is good or bad",
}
