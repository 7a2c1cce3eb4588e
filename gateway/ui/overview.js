// The overview: hit rate, latency, throughput and requests over time, alerts, the busiest buckets, and the
// jobs that run.

import { lineChart } from "./chart.js";
import { badge, card, el, meter, once, setText, table } from "./dom.js";
import { bucketOfUri, byteRate, duration, latency, percent, rate } from "./format.js";
import { objectsLink } from "./buckets.js";

const SHOWN_BUCKETS = 6;
const SEVERITIES = { critical: "bad", warning: "warn", info: "" };

function tile(title) {
  const value = el("dd", { text: "–" });
  const node = el("div", { class: "tile" }, el("dt", { text: title }), value);
  node.show = (text, kind = "") => {
    setText(value, text);
    value.className = kind;
  };
  return node;
}

export function overview(root) {
  const tiles = {
    hits: tile("Hit rate"),
    p99: tile("p99 latency"),
    read: tile("Read"),
    written: tile("Written"),
    requests: tile("Requests"),
    errors: tile("Errors"),
    nodes: tile("Nodes that answer"),
  };
  const alerts = el("ul", { class: "alerts" });
  const noAlerts = el("p", { class: "empty", text: "No alerts." });
  const charts = [
    lineChart({
      title: "Throughput", format: byteRate, base: 1024, floor: 1024,
      series: [
        { name: "read", kind: "one", of: (cluster) => cluster.read_bytes_per_s },
        { name: "written", kind: "two", of: (cluster) => cluster.written_bytes_per_s },
      ],
    }),
    lineChart({
      title: "Hit rate", format: percent, max: 1,
      series: [{ name: "hits", kind: "one", of: (cluster) => cluster.hit_rate }],
    }),
    lineChart({
      title: "Latency", format: latency, floor: 0.001,
      series: [
        { name: "p99", kind: "two", of: (cluster) => cluster.p99_s },
        { name: "p50", kind: "one", of: (cluster) => cluster.p50_s },
      ],
    }),
    lineChart({
      title: "Requests", format: rate, floor: 1,
      series: [
        { name: "all", kind: "one", of: (cluster) => cluster.requests_per_s },
        { name: "errors", kind: "three", of: (cluster) => cluster.errors_per_s },
      ],
    }),
  ];
  const busiest = table("Busiest buckets", [
    { title: "Bucket", draw: (cell, row) => {
      // The sum of the other buckets is no bucket.
      const link = once(cell, () => el(row.bucket.provider ? "a" : "span"));
      setText(link, row.bucket.provider ? row.bucket.uri : "the others");
      if (row.bucket.provider) link.href = objectsLink(bucketOfUri(row.bucket));
    } },
    { title: "Read", number: true, text: (row) => byteRate(row.bucket.read_bytes_per_s) },
    { title: "Requests", number: true, text: (row) => rate(row.bucket.requests_per_s) },
    { title: "Hit rate", number: true, text: (row) => percent(row.bucket.hit_rate) },
  ], { empty: "No bucket was read or written in the last second." });
  const running = table("Running jobs", [
    { title: "Job", draw: (cell, row) => {
      const link = once(cell, () => el("a", { href: "#/jobs" }));
      setText(link, row.job.kind);
    } },
    { title: "Bucket", text: (row) => row.job.bucket ?? "–" },
    { title: "Progress", draw: (cell, row) => drawProgress(cell, row.job) },
    { title: "Time left", number: true, text: (row) => duration(row.job.eta_s ?? null) },
  ], { empty: "No job is running." });

  const gap = el("p", { class: "hint warn", role: "status", hidden: true });
  root.append(
    el("dl", { class: "tiles" }, Object.values(tiles)),
    card("Alerts", [alerts, noAlerts]),
    gap,
    el("div", { class: "grid-two" }, charts),
    el("div", { class: "grid-two" }, card("Busiest buckets", busiest), card("Running jobs", running)),
  );

  function showAlerts(list) {
    noAlerts.hidden = list.length > 0;
    const key = JSON.stringify(list);
    if (alerts.dataset.key === key) return;
    alerts.dataset.key = key;
    alerts.replaceChildren(...list.map(({ name, severity, text }) => el("li", null,
      badge(severity, SEVERITIES[severity] ?? "warn"), el("strong", { text: name }), el("span", { text }))));
  }

  return {
    update(live) {
      charts.forEach((chart) => chart.show(live.history));
      gap.hidden = !live.gap.text || Date.now() > live.gap.untilMs;
      setText(gap, gap.hidden ? "" : live.gap.text);
      const now = live.latest;
      if (!now) return;
      const { cluster } = now;
      tiles.hits.show(percent(cluster.hit_rate));
      tiles.p99.show(latency(cluster.p99_s));
      tiles.read.show(byteRate(cluster.read_bytes_per_s));
      tiles.written.show(byteRate(cluster.written_bytes_per_s));
      tiles.requests.show(rate(cluster.requests_per_s));
      tiles.errors.show(rate(cluster.errors_per_s), cluster.errors_per_s > 0 ? "bad" : "");
      const answering = now.nodes.filter((node) => node.answered).length;
      tiles.nodes.show(`${answering} of ${now.nodes.length}`, answering < now.nodes.length ? "bad" : "");
      showAlerts(now.alerts);
      const isBusy = ({ requests_per_s, read_bytes_per_s, written_bytes_per_s }) =>
        requests_per_s + read_bytes_per_s + written_bytes_per_s > 0;
      const busy = now.buckets.filter(isBusy).slice(0, SHOWN_BUCKETS);
      busiest.show(busy.map((bucket) => ({ key: bucket.uri || "other", bucket })));
      const open = now.jobs.filter((job) => job.state === "running");
      running.show(open.map((job) => ({ key: job.id, job })));
    },
  };
}

// The progress of a job of the overview in a cell: a bar if its size is known, and its text.
export function drawProgress(cell, job) {
  const { done } = job;
  const total = job.total ?? 0;
  const box = once(cell, () => {
    const bar = meter("");
    const text = el("span", { class: "figure" });
    return Object.assign(el("span", { class: "progress" }, bar, text), { bar, text });
  });
  const share = total > 0 ? done / total : 0;
  const text = total > 0 ? `${percent(share)} of ${total.toLocaleString("en")}` : done.toLocaleString("en");
  box.bar.hidden = !(total > 0);
  box.bar.show(share, text);
  setText(box.text, text);
}
