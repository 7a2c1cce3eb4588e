//! Every setting of the cluster: its name, the type of its value, and its default.
//!
//! Names, types and defaults are those of AIStore 5.0, because its clients decode the whole
//! document into typed structures. A name is the path through the sections, joined by dots.

use super::kind::Kind::{self, Bool, Choice, Duration, Features, Int, Mask, Size, Text};

/// One setting. Its values and its default are in the canonical text of their kind.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// Shown, but cannot be changed while the cluster runs.
    pub fixed: bool,
    /// Omitted from the document while it is empty.
    pub optional: bool,
}

const fn setting(name: &'static str, kind: Kind, default: &'static str) -> Setting {
    Setting { name, kind, default, fixed: false, optional: false }
}

const fn fixed(name: &'static str, kind: Kind, default: &'static str) -> Setting {
    Setting { name, kind, default, fixed: true, optional: false }
}

const fn optional(name: &'static str) -> Setting {
    Setting { name, kind: Text, default: "", fixed: false, optional: true }
}

const PERCENT: Kind = Int(0, 100);
const COUNT: Kind = Int(0, i32::MAX as i64);
const COMPRESSION: Kind = Choice(&["never", "always"]);
const POLICY: Kind = Choice(&["immediate", "delayed", "never"]);
const REACTION: Kind = Choice(&["ignore", "warn", "abort"]);
const CHECKSUMS: Kind = Choice(&["none", "xxhash", "xxhash2", "md5", "crc32c", "sha256", "sha512"]);

/// All settings, section by section.
pub static SETTINGS: &[Setting] = &[
    setting("features", Features, "0"),
    setting("mirror.copies", Int(1, 32), "2"),
    setting("mirror.burst_buffer", COUNT, "512"),
    setting("mirror.enabled", Bool, "false"),
    setting("ec.compression", COMPRESSION, "never"),
    setting("ec.bundle_multiplier", Int(1, 16), "2"),
    setting("ec.burst_buffer", COUNT, "512"),
    setting("ec.objsize_limit", Int(-1, i64::MAX), "262144"),
    setting("ec.data_slices", Int(1, 32), "2"),
    setting("ec.parity_slices", Int(1, 32), "2"),
    setting("ec.enabled", Bool, "false"),
    setting("ec.disk_only", Bool, "false"),
    setting("chunks.objsize_limit", Size, "0B"),
    setting("chunks.max_monolithic_size", Size, "1TiB"),
    setting("chunks.chunk_size", Size, "1GiB"),
    setting("log.level", Text, "3"),
    setting("log.max_size", Size, "4MiB"),
    setting("log.max_total", Size, "128MiB"),
    setting("log.flush_time", Duration, "1m"),
    setting("log.stats_time", Duration, "3m"),
    setting("log.to_stderr", Bool, "true"),
    setting("periodic.stats_time", Duration, "10s"),
    setting("periodic.retry_sync_time", Duration, "2s"),
    setting("periodic.notif_time", Duration, "30s"),
    setting("timeout.cplane_operation", Duration, "2s"),
    setting("timeout.max_keepalive", Duration, "5s"),
    setting("timeout.max_host_busy", Duration, "20s"),
    setting("timeout.startup_time", Duration, "1m"),
    setting("timeout.join_startup_time", Duration, "3m"),
    setting("timeout.send_file_time", Duration, "5m"),
    setting("timeout.ec_streams_time", Duration, "10m"),
    setting("timeout.object_md", Duration, "2h0m"),
    setting("timeout.cold_get_conflict", Duration, "5s"),
    setting("client.client_timeout", Duration, "10s"),
    setting("client.client_long_timeout", Duration, "5m"),
    setting("client.list_timeout", Duration, "5m"),
    fixed("proxy.primary_url", Text, ""),
    fixed("proxy.original_url", Text, ""),
    fixed("proxy.discovery_url", Text, ""),
    fixed("proxy.non_electable", Bool, "false"),
    setting("space.cleanupwm", PERCENT, "65"),
    setting("space.lowwm", PERCENT, "75"),
    setting("space.highwm", PERCENT, "90"),
    setting("space.out_of_space", PERCENT, "95"),
    setting("space.batch_size", COUNT, "32768"),
    setting("space.dont_cleanup_time", Duration, "2h0m"),
    setting("lru.dont_evict_time", Duration, "2h0m"),
    setting("lru.capacity_upd_time", Duration, "10m"),
    setting("lru.batch_size", COUNT, "32768"),
    setting("lru.enabled", Bool, "true"),
    setting("disk.disk_util_low_wm", PERCENT, "20"),
    setting("disk.disk_util_high_wm", PERCENT, "80"),
    setting("disk.disk_util_max_wm", PERCENT, "95"),
    setting("disk.iostat_time_long", Duration, "2s"),
    setting("disk.iostat_time_short", Duration, "100ms"),
    setting("disk.iostat_time_smooth", Duration, "8s"),
    setting("rebalance.compression", COMPRESSION, "never"),
    setting("rebalance.bundle_multiplier", Int(1, 16), "2"),
    setting("rebalance.burst_buffer", COUNT, "512"),
    setting("rebalance.dest_retry_time", Duration, "2m"),
    setting("rebalance.enabled", Bool, "true"),
    setting("resilver.enabled", Bool, "true"),
    setting("checksum.type", CHECKSUMS, "xxhash2"),
    setting("checksum.validate_cold_get", Bool, "true"),
    setting("checksum.validate_warm_get", Bool, "false"),
    setting("checksum.validate_obj_move", Bool, "false"),
    setting("checksum.enable_read_range", Bool, "false"),
    setting("versioning.enabled", Bool, "true"),
    setting("versioning.validate_warm_get", Bool, "false"),
    setting("versioning.synchronize", Bool, "false"),
    fixed("net.l4.proto", Text, "tcp"),
    fixed("net.l4.sndrcv_buf_size", COUNT, "131072"),
    fixed("net.http.server_crt", Text, ""),
    fixed("net.http.server_key", Text, ""),
    fixed("net.http.client_ca_tls", Text, ""),
    fixed("net.http.client_auth_tls", Int(0, 4), "0"),
    fixed("net.http.domain_tls", Text, ""),
    setting("net.http.idle_conn_time", Duration, "6s"),
    setting("net.http.backend_idle_conn_time", Duration, "6s"),
    setting("net.http.idle_conns_per_host", COUNT, "32"),
    setting("net.http.idle_conns", COUNT, "256"),
    fixed("net.http.write_buffer_size", COUNT, "0"),
    fixed("net.http.read_buffer_size", COUNT, "0"),
    fixed("net.http.use_https", Bool, "false"),
    fixed("net.http.skip_verify", Bool, "false"),
    setting("net.http.chunked_transfer", Bool, "true"),
    fixed("net.use_ipv6", Bool, "false"),
    setting("fshc.test_files", COUNT, "4"),
    setting("fshc.error_limit", COUNT, "2"),
    setting("fshc.io_err_limit", COUNT, "10"),
    setting("fshc.io_err_time", Duration, "10s"),
    setting("fshc.enabled", Bool, "true"),
    fixed("auth.client_auth_required", Bool, "false"),
    fixed("keepalivetracker.proxy.name", Text, "heartbeat"),
    setting("keepalivetracker.proxy.interval", Duration, "10s"),
    setting("keepalivetracker.proxy.factor", Int(1, 255), "3"),
    fixed("keepalivetracker.target.name", Text, "heartbeat"),
    setting("keepalivetracker.target.interval", Duration, "10s"),
    setting("keepalivetracker.target.factor", Int(1, 255), "3"),
    setting("keepalivetracker.num_retries", COUNT, "3"),
    setting("keepalivetracker.retry_factor", Int(1, 255), "4"),
    setting("downloader.timeout", Duration, "1h0m"),
    setting("distributed_sort.duplicated_records", REACTION, "abort"),
    setting("distributed_sort.missing_shards", REACTION, "ignore"),
    setting("distributed_sort.ekm_malformed_line", REACTION, "abort"),
    setting("distributed_sort.ekm_missing_key", REACTION, "abort"),
    setting("distributed_sort.default_max_mem_usage", Text, "80%"),
    setting("distributed_sort.dsorter_mem_threshold", Text, "100GB"),
    setting("distributed_sort.compression", COMPRESSION, "never"),
    setting("distributed_sort.bundle_multiplier", Int(1, 16), "4"),
    setting("distributed_sort.burst_buffer", COUNT, "512"),
    setting("distributed_sort.call_timeout", Duration, "10m"),
    setting("transport.max_header", COUNT, "4096"),
    setting("transport.burst_buffer", COUNT, "1024"),
    setting("transport.idle_teardown", Duration, "4s"),
    setting("transport.quiescent", Duration, "10s"),
    setting("transport.lz4_block", Size, "256KiB"),
    setting("transport.lz4_frame_checksum", Bool, "false"),
    setting("memsys.min_free", Size, "2GiB"),
    setting("memsys.default_buf", Size, "32KiB"),
    setting("memsys.to_gc", Size, "4GiB"),
    setting("memsys.hk_time", Duration, "3m"),
    setting("memsys.min_pct_total", PERCENT, "0"),
    setting("memsys.min_pct_free", PERCENT, "0"),
    setting("tcb.compression", COMPRESSION, "never"),
    setting("tcb.bundle_multiplier", Int(1, 16), "2"),
    setting("tcb.burst_buffer", COUNT, "512"),
    setting("tco.compression", COMPRESSION, "never"),
    setting("tco.bundle_multiplier", Int(1, 16), "2"),
    setting("tco.burst_buffer", COUNT, "512"),
    setting("arch.compression", COMPRESSION, "never"),
    setting("arch.bundle_multiplier", Int(1, 16), "2"),
    setting("arch.burst_buffer", COUNT, "512"),
    setting("lso.compression", COMPRESSION, "never"),
    setting("lso.bundle_multiplier", Int(1, 16), "1"),
    setting("lso.burst_buffer", COUNT, "32"),
    setting("lso.walk_buffer", COUNT, "128"),
    setting("lso.idle_time", Duration, "20s"),
    setting("lso.quiescent", Duration, "5s"),
    fixed("write_policy.data", POLICY, "immediate"),
    setting("write_policy.md", POLICY, "immediate"),
    optional("rate_limit.backend.per_op_max_tokens"),
    setting("rate_limit.backend.interval", Duration, "1m"),
    setting("rate_limit.backend.max_tokens", COUNT, "1000"),
    setting("rate_limit.backend.enabled", Bool, "false"),
    setting("rate_limit.backend.num_retries", COUNT, "3"),
    optional("rate_limit.frontend.per_op_max_tokens"),
    setting("rate_limit.frontend.interval", Duration, "1m"),
    setting("rate_limit.frontend.max_tokens", COUNT, "1000"),
    setting("rate_limit.frontend.enabled", Bool, "false"),
    setting("rate_limit.frontend.burst_size", COUNT, "375"),
    setting("get_batch.compression", COMPRESSION, "never"),
    setting("get_batch.bundle_multiplier", Int(1, 16), "2"),
    setting("get_batch.burst_buffer", COUNT, "512"),
    setting("get_batch.max_wait", Duration, "30s"),
    setting("get_batch.warmup_workers", Int(-1, 1024), "2"),
    setting("get_batch.max_soft_errs", COUNT, "6"),
    setting("get_batch.max_gfn", COUNT, "5"),
];

/// Properties of buckets that are not part of the cluster's configuration.
static OF_BUCKETS_ONLY: &[Setting] = &[
    setting("access", Mask, "18446744073709551615"),
    setting("features", Features, "0"),
    optional("extra.aws.cloud_region"),
    optional("extra.aws.endpoint"),
    optional("extra.aws.profile"),
    setting("extra.aws.max_pagesize", COUNT, "0"),
    setting("extra.aws.multipart_size", Size, "0B"),
    optional("extra.gcp.application_creds"),
    optional("extra.oci.region"),
    optional("extra.custom"),
];

/// Sections of the configuration that are also properties of buckets; the configuration contains
/// the defaults of new ones.
const OF_BUCKETS: [&str; 8] =
    ["mirror", "ec", "chunks", "lru", "checksum", "versioning", "write_policy", "rate_limit"];

/// Whether the setting of this name is a default of new buckets.
pub(super) fn is_of_buckets(name: &str) -> bool {
    name.split_once('.').is_some_and(|(section, _)| OF_BUCKETS.contains(&section))
}

/// The property of buckets of this name.
pub fn find_of_buckets(name: &str) -> Option<&'static Setting> {
    let own = OF_BUCKETS_ONLY.iter().find(|s| s.name == name);
    own.or_else(|| find(name).filter(|_| is_of_buckets(name)))
}

/// Names of all properties of buckets.
pub(super) fn names_of_buckets() -> impl Iterator<Item = &'static str> {
    let shared = SETTINGS.iter().map(|s| s.name).filter(|name| is_of_buckets(name));
    OF_BUCKETS_ONLY.iter().map(|s| s.name).chain(shared)
}

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.name == name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_canonical_value_of_its_kind_and_every_name_stands_once() {
        for (i, setting) in SETTINGS.iter().enumerate() {
            let read = setting.kind.read_text(setting.default);
            assert_eq!(read.as_deref().ok(), Some(setting.default), "{}", setting.name);
            assert!(SETTINGS[i + 1..].iter().all(|s| s.name != setting.name), "{}", setting.name);
        }
    }
}
