// Buckets with their warmth: what is cached, and what its readers got from the cache.

import { getJson } from "./api.js";
import { badge, card, el, meter, once, setText, table } from "./dom.js";
import { ago, bucketUri, bytes, count, percent } from "./format.js";

const REFRESH_MS = 4000;

// The address of the screen with the objects of a bucket.
export function objectsLink(bucket, prefix = "") {
  return `#/objects?${bucketParams(bucket, prefix ? { prefix } : {})}`;
}

// The parameters of an address that name a bucket.
export function bucketParams(bucket, others = {}) {
  const params = new URLSearchParams({ provider: bucket.provider, bucket: bucket.name });
  const { uuid = "", name = "" } = bucket.namespace ?? {};
  if (uuid) params.set("uuid", uuid);
  if (name) params.set("ns", name);
  for (const [key, value] of Object.entries(others)) params.set(key, value);
  return params;
}

// The bucket that an address names.
export function bucketOf(params) {
  return {
    provider: params.get("provider") ?? "ais",
    name: params.get("bucket") ?? "",
    namespace: { uuid: params.get("uuid") ?? "", name: params.get("ns") ?? "" },
  };
}

// The share of reads of a window that were served from the cache; null if nothing was read.
export function hitShare(window) {
  const all = window.hit_objects + window.miss_objects + window.coalesced_objects;
  return all > 0 ? (window.hit_objects + window.coalesced_objects) / all : null;
}

// How much of the last listing is cached, with its text. The share of a native bucket is all of it.
export function warmShare(warmth) {
  if (!warmth.backed) return [1, "stored here"];
  if (!warmth.listing) return [null, "never listed"];
  if (warmth.listing.objects === 0) return [null, "empty at the last listing"];
  const share = Math.min(1, warmth.objects / warmth.listing.objects);
  return [share, `${percent(share)} of ${count(warmth.listing.objects)} listed ${ago(warmth.listing.taken_ns)}`];
}

// A number of what is stored, marked where it is not exact.
const stored = (warmth, text) => (warmth.exact ? text : `~${text}`);

export function buckets(root, context) {
  const all = table("Buckets", [
    { title: "Bucket", draw: (cell, row) => {
      const box = once(cell, () => {
        const link = el("a");
        const pin = badge("pinned", "");
        return Object.assign(el("div", { class: "named" }, link, pin), { link, pin });
      });
      setText(box.link, bucketUri(row.warmth.bucket));
      box.link.href = objectsLink(row.warmth.bucket);
      box.pin.hidden = !row.warmth.pinned;
    } },
    { title: "Warm", draw: (cell, row) => {
      const box = once(cell, () => {
        const bar = meter("");
        const text = el("span", { class: "under" });
        return Object.assign(el("div", { class: "share" }, bar, text), { bar, text });
      });
      const [share, text] = warmShare(row.warmth);
      box.bar.show(share ?? 0, text);
      box.bar.hidden = share === null;
      setText(box.text, text);
    } },
    { title: "Objects", number: true, text: (row) => stored(row.warmth, count(row.warmth.objects)) },
    { title: "Bytes", number: true, text: (row) => stored(row.warmth, bytes(row.warmth.bytes)) },
    { title: "In part", number: true, text: (row) =>
      (row.warmth.partial_objects ? `${count(row.warmth.partial_objects)} (${bytes(row.warmth.partial_bytes)})` : "–") },
    { title: "Hits, last hour", number: true, text: (row) => percent(hitShare(row.warmth.hour)) },
    { title: "Hits, last day", number: true, text: (row) => percent(hitShare(row.warmth.day)) },
    { title: "Egress saved, last day", number: true, text: (row) =>
      (row.warmth.egress_saved_day_bytes ? bytes(row.warmth.egress_saved_day_bytes) : "–") },
    { title: "Last use of the oldest copy", number: true, text: (row) => ago(row.warmth.no_access_before_ns) },
  ], { empty: "There is no bucket yet: make one with “forebay mb ais://NAME”." });
  const away = el("p", { class: "hint warn", hidden: true });
  root.append(away, card("All buckets", all));

  context.poll(REFRESH_MS, async () => {
    const reply = await getJson("/api/v1/warmth", { signal: context.signal });
    all.show(reply.buckets.map((warmth) => ({ key: bucketUri(warmth.bucket), warmth })));
    away.hidden = reply.away.length === 0;
    setText(away, `Without the copies of targets that did not answer: ${reply.away.join(", ")}.`);
  });
}
