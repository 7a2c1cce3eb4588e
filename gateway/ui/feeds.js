// Training feeds: how long the steps of each loop waited, and for what.

import { getJson } from "./api.js";
import { card, el, once, setText, table } from "./dom.js";
import { ago, byteRate, count, duration, percent } from "./format.js";

const REFRESH_MS = 2000;
// The causes of a wait, with the class of their colour and what they mean.
const CAUSES = [
  ["cold", "two", "cold", "objects that came from the cloud"],
  ["disk", "one", "disk", "reads from the disks of targets"],
  ["queue", "three", "queue", "targets that are busy"],
  ["network", "six", "network", "bytes on the network"],
  ["client", "seven", "client", "the client's own work: checksums, unpacking, copies"],
  ["decode", "five", "decode", "decoding and transforms of the dataset"],
  ["collate", "four", "collate", "samples put together to batches"],
  ["worker", "nine", "worker", "workers that had no batch ready"],
  ["unknown", "eight", "unknown", "no known cause"],
];

// The share of the time of the steps that was waiting; null before the first step.
function waitShare(feed) {
  return feed.step_s > 0 ? Math.min(1, feed.wait_s / feed.step_s) : null;
}

// The seconds of each cause, the largest first; the rest of the wait has no known cause.
function causesOf(feed) {
  const known = CAUSES.slice(0, -1).map(([name]) => feed.causes[name] ?? 0);
  const sum = known.reduce((all, seconds) => all + seconds, 0);
  const seconds = [...known, Math.max(0, feed.wait_s - sum)];
  const all = seconds.reduce((total, part) => total + part, 0);
  return CAUSES.map(([, kind, title], at) => ({ kind, title, seconds: seconds[at], share: all > 0 ? seconds[at] / all : 0 }))
    .filter(({ share }) => share > 0.001)
    .sort((a, b) => b.seconds - a.seconds);
}

function drawCauses(cell, { feed }) {
  const box = once(cell, () => {
    const bar = el("span", { class: "stack", role: "img" });
    const text = el("span", { class: "under" });
    return Object.assign(el("div", { class: "share" }, bar, text), { bar, text, parts: "" });
  });
  const causes = causesOf(feed);
  const text = causes.map(({ title, share }) => `${title} ${percent(share)}`);
  const parts = text.join(", ");
  if (box.parts === parts) return;
  box.parts = parts;
  box.bar.setAttribute("aria-label", parts ? `Waited for ${parts}` : "No wait yet");
  box.bar.replaceChildren(...causes.map(({ kind, share }) => {
    const part = el("span", { class: `part ${kind}` });
    part.style.width = `${(share * 100).toFixed(2)}%`;
    return part;
  }));
  setText(box.text, text.slice(0, 3).join(", ") || "–");
}

export function feeds(root, context) {
  const legend = el("ul", { class: "legend" }, CAUSES.map(([, kind, title, meaning]) =>
    el("li", { title: meaning }, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), title)));
  const all = table("Training feeds", [
    { title: "Loop", draw: (cell, { feed }) => {
      const box = once(cell, () => {
        const [name, where] = [el("strong"), el("span", { class: "under" })];
        return Object.assign(el("div", null, name, where), { name, where });
      });
      setText(box.name, feed.name || feed.id);
      setText(box.where, `rank ${feed.rank} on ${feed.host || "an unknown host"}`);
    } },
    { title: "Buckets", text: ({ feed }) => feed.buckets.join(", ") || "–" },
    { title: "Steps", number: true, text: ({ feed }) => count(feed.steps) },
    { title: "Read", number: true, text: ({ feed }) => (feed.step_s > 0 ? byteRate(feed.bytes / feed.step_s) : "–") },
    { title: "Waiting", number: true, text: ({ feed }) => percent(waitShare(feed)) },
    { title: "Waited", number: true, text: ({ feed }) => duration(feed.wait_s) },
    { title: "Waited for", draw: drawCauses },
    { title: "Last report", number: true, text: ({ feed }) => ago(feed.updated * 1e9) },
  ], { empty: "No training loop has reported its steps in the last minutes." });
  const away = el("p", { class: "hint warn", hidden: true });
  const hint = el("p", { class: "hint" }, "What helps against a cause: ", el("code", { text: "forebay why NAME" }));
  root.append(away, card("Training loops", [all, hint], { aside: legend }));

  context.poll(REFRESH_MS, async () => {
    const reply = await getJson("/api/v1/feeds", { signal: context.signal });
    const order = (a, b) => a.name.localeCompare(b.name) || a.rank - b.rank || a.id.localeCompare(b.id);
    all.show(reply.feeds.sort(order).map((feed) => ({ key: feed.id, feed })));
    away.hidden = reply.away.length === 0;
    setText(away, `Without the feeds of gateways that did not answer: ${reply.away.join(", ")}.`);
  });
}
