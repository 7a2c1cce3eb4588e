// The objects of a bucket, one level of names at a time, with what is cached of them.

import { getJson, request } from "./api.js";
import { badge, card, confirmed, el, notice, once, setBadge, setText, table } from "./dom.js";
import { bucketQuery, bucketUri, bytes, count, moment, percent } from "./format.js";
import { bucketOf, bucketParams, hitShare, objectsLink, warmShare } from "./buckets.js";

const PAGE_OBJECTS = 200;
const REFRESH_MS = 4000;

// Starts a prefetch of the names that begin with `prefix`; returns the id of the job.
export async function startPrefetch(bucket, prefix) {
  const path = `/v1/buckets/${encodeURIComponent(bucket.name)}?${bucketQuery(bucket)}`;
  const json = { action: "prefetch-listrange", name: "", value: { prefix } };
  const answer = await request(path, { method: "POST", json });
  return (await answer.text()).trim().replaceAll('"', "");
}

// The question before a prefetch, which may cost money.
export function prefetchQuestion(uri, prefix) {
  const which = prefix ? `all objects of ${uri} whose names begin with “${prefix}”` : `all objects of ${uri}`;
  return `Prefetch ${which}? The cluster fetches those that it does not have; a cloud bills its requests and bytes.`;
}

// The parts of a prefix as links.
function trail(bucket, prefix) {
  const parts = prefix.split("/");
  const last = parts.pop();
  const links = parts.map((part, at) => el("li", null,
    el("a", { href: objectsLink(bucket, `${parts.slice(0, at + 1).join("/")}/`), text: `${part}/` })));
  const all = [el("li", null, el("a", { href: "#/buckets", text: "Buckets" })),
    el("li", null, el("a", { href: objectsLink(bucket), text: bucketUri(bucket) })), ...links];
  if (last) all.push(el("li", null, `${last}…`));
  return el("nav", { "aria-label": "Where this is" }, el("ol", { class: "trail" }, all));
}

export function objects(root, context) {
  const bucket = bucketOf(context.params);
  const prefix = context.params.get("prefix") ?? "";
  const isCachedOnly = context.params.get("cached") === "1";
  const uri = bucketUri(bucket);
  context.setTitle(uri);

  const facts = el("dl", { class: "tiles small" });
  const list = table("Objects", [
    { title: "Name", draw: (cell, row) => {
      const link = once(cell, () => el("a"));
      setText(link, row.name);
      link.href = row.href;
    } },
    { title: "Cached", draw: (cell, row) => {
      const mark = once(cell, () => badge("", ""));
      mark.hidden = row.isFolder;
      setBadge(mark, row.cached ? "cached" : "not cached", row.cached ? "good" : "");
    } },
    { title: "Size", number: true, text: (row) => (row.isFolder ? "" : bytes(row.size)) },
    { title: "Written", number: true, text: (row) => (row.isFolder ? "" : moment(row.mtime_ns)) },
  ], { empty: "Reading the list…" });
  const more = el("button", { type: "button", class: "quiet", text: "Show more", hidden: true });
  const field = el("input", { id: "prefix", name: "prefix", value: prefix, spellcheck: "false", autocomplete: "off" });
  const cached = el("input", { id: "cached", type: "checkbox", checked: isCachedOnly });
  const prefetch = el("button", { type: "button", text: "Prefetch", hidden: true });
  const form = el("form", { class: "tools", role: "search" },
    el("label", { for: "prefix", text: "Names that begin with" }), field,
    el("span", { class: "check" }, cached, el("label", { for: "cached", text: "cached only" })),
    el("button", { type: "submit", class: "quiet", text: "Show" }), prefetch);
  root.append(trail(bucket, prefix), facts, card("Objects", [form, list, more]));

  let rows = [];
  let next = "";
  let isBacked = false;

  function go() {
    const others = { ...(field.value ? { prefix: field.value } : {}), ...(cached.checked ? { cached: "1" } : {}) };
    location.hash = `#/objects?${bucketParams(bucket, others)}`;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  cached.addEventListener("change", go);
  prefetch.addEventListener("click", async () => {
    if (!(await confirmed(prefetchQuestion(uri, prefix), "Prefetch"))) return;
    try {
      const id = await startPrefetch(bucket, prefix);
      notice(`The job ${id} was started.`);
      location.hash = "#/jobs";
    } catch (error) {
      notice(error.message, "bad");
    }
  });

  async function page(after, limit) {
    const query = bucketQuery(bucket);
    query.set("folders", "true");
    query.set("limit", limit);
    if (prefix) query.set("prefix", prefix);
    if (after) query.set("after", after);
    if (isCachedOnly) query.set("cached", "true");
    const path = `/api/v1/objects/${encodeURIComponent(bucket.name)}?${query}`;
    const found = await getJson(path, { signal: context.signal });
    const folders = found.folders.map((name) =>
      ({ key: name, name: name.slice(prefix.lastIndexOf("/") + 1), isFolder: true, href: objectsLink(bucket, name) }));
    const objects = found.objects.map((object) => ({
      ...object, key: object.name, name: object.name.slice(prefix.lastIndexOf("/") + 1) || object.name,
      isFolder: false, href: `#/shard?${bucketParams(bucket, { name: object.name, size: object.size })}`,
    }));
    return { rows: [...folders, ...objects], next: found.next ?? "" };
  }

  function show() {
    list.setEmpty(prefix || isCachedOnly ? "No object fits." : "The bucket is empty.");
    list.show(rows);
    more.hidden = !next;
  }

  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const found = await page(next, PAGE_OBJECTS);
      rows = [...rows, ...found.rows];
      next = found.next;
      show();
    } catch (error) {
      notice(error.message, "bad");
    } finally {
      more.disabled = false;
    }
  });

  // The first page is read again while it is the only one. A listing of a cloud is read once: it costs money.
  let isListed = false;
  context.poll(REFRESH_MS, async () => {
    const query = bucketQuery(bucket);
    const path = `/api/v1/warmth/${encodeURIComponent(bucket.name)}?${query}`;
    const warmth = (await getJson(path, { signal: context.signal })).buckets[0];
    isBacked = warmth.backed;
    const [, text] = warmShare(warmth);
    const pairs = [
      ["Objects here", count(warmth.objects)], ["Bytes here", bytes(warmth.bytes)], ["Warm", text],
      ["Hits, last hour", percent(hitShare(warmth.hour))], ["Hits, last day", percent(hitShare(warmth.day))],
      ["Egress saved, last day", warmth.egress_saved_day_bytes ? bytes(warmth.egress_saved_day_bytes) : "–"],
    ];
    facts.replaceChildren(...pairs.map(([name, value]) =>
      el("div", { class: "tile" }, el("dt", { text: name }), el("dd", { text: value }))));
    prefetch.hidden = !(isBacked && (await context.can("run-jobs", uri)));
    if (isListed && (isBacked && !isCachedOnly || rows.length > PAGE_OBJECTS)) return;
    ({ rows, next } = await page("", PAGE_OBJECTS));
    isListed = true;
    show();
  });
}
