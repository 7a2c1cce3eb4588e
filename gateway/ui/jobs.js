// Jobs: their progress and the time left; starts a prefetch, and stops a job.

import { getJson, request } from "./api.js";
import { badge, card, confirmed, el, notice, once, setBadge, setText, table } from "./dom.js";
import { bucketUri, bytes, count, duration, moment } from "./format.js";
import { drawProgress } from "./overview.js";
import { prefetchQuestion, startPrefetch } from "./objects.js";

const REFRESH_MS = 1000;
const SHOWN_JOBS = 100;
const STATES = {
  running: ["Running", "info"], done: ["Done", "good"], failed: ["Failed", "bad"], stopped: ["Stopped", "warn"],
};

// Objects that are done, and the expected number; 0 if unknown.
function progress(job) {
  return { done: job.objects + job.present + job.errors, total: job.total_objects };
}

// Seconds until the job has ended, at its mean rate so far; null if unknown.
function secondsLeft(job) {
  const { done, total } = progress(job);
  const passed = Date.now() / 1000 - job.started_ns / 1e9;
  return job.state === "running" && done > 0 && total > 0 ? (passed * (total - done)) / done : null;
}

function ranFor(job) {
  const until = job.ended_ns ? job.ended_ns / 1e9 : Date.now() / 1000;
  return Math.max(0, until - job.started_ns / 1e9);
}

export function jobs(root, context) {
  const all = table("Jobs", [
    { title: "Job", draw: (cell, { job }) => {
      const box = once(cell, () => {
        const [kind, name] = [el("strong"), el("span", { class: "under" })];
        return Object.assign(el("div", null, kind, name), { kind, name });
      });
      setText(box.kind, job.kind);
      setText(box.name, job.id);
    } },
    { title: "Bucket", text: ({ job }) => {
      const from = job.bucket ? bucketUri(job.bucket) : "the cluster";
      return job.destination ? `${from} → ${bucketUri(job.destination)}` : from;
    } },
    { title: "State", draw: (cell, { job }) => {
      setBadge(once(cell, () => badge("", "")), ...(STATES[job.state] ?? [job.state, ""]));
    } },
    { title: "Progress", draw: (cell, { job }) => drawProgress(cell, progress(job)) },
    { title: "Bytes", number: true, text: ({ job }) => bytes(job.bytes) },
    { title: "Errors", draw: (cell, { job }) => {
      setText(cell, job.errors ? count(job.errors) : "–");
      cell.title = job.failure?.message ?? job.messages?.[0] ?? "";
    }, number: true },
    { title: "Time left", number: true, text: ({ job, left }) =>
      (job.state === "running" ? duration(left ?? secondsLeft(job)) : "–") },
    { title: "Ran for", number: true, text: ({ job }) => duration(ranFor(job)) },
    { title: "Started", number: true, text: ({ job }) => moment(job.started_ns) },
    { title: "Change", hidden: true, draw: (cell, row) => drawStop(cell, row) },
  ], { empty: "No job has run yet." });
  root.append(starter(context), card("All jobs", all));

  function drawStop(cell, { job }) {
    const button = once(cell, () => {
      const made = el("button", { type: "button", class: "quiet small", text: "Cancel", hidden: true });
      made.addEventListener("click", () => stop(made.job));
      return made;
    });
    button.job = job;
    button.setAttribute("aria-label", `Cancel ${job.id}`);
    const isStoppable = job.state === "running";
    if (!isStoppable) button.hidden = true;
    else context.can("run-jobs", job.bucket ? bucketUri(job.bucket) : "").then((is) => {
      button.hidden = !is || button.job.state !== "running";
    });
  }

  async function stop(job) {
    if (!(await confirmed(`Cancel ${job.id}? What it has done stays done.`, "Cancel the job"))) return;
    try {
      await request(`/api/v1/jobs/${encodeURIComponent(job.id)}`, { method: "DELETE" });
      notice(`${job.id} is being cancelled.`);
      refresh();
    } catch (error) {
      notice(error.message, "bad");
    }
  }

  const refresh = context.poll(REFRESH_MS, async () => {
    const list = await getJson("/api/v1/jobs", { signal: context.signal });
    const isRunning = (job) => job.state === "running";
    list.sort((a, b) => isRunning(b) - isRunning(a) || b.started_ns - a.started_ns);
    const left = new Map((context.live.latest?.jobs ?? []).map((job) => [job.id, job.eta_s]));
    all.show(list.slice(0, SHOWN_JOBS).map((job) => ({ key: job.id, job, left: left.get(job.id) })));
  });
}

// The form that starts a prefetch; it shows only if the user may start one on some bucket.
function starter(context) {
  const choice = el("select", { id: "start-bucket", required: true });
  const prefix = el("input", { id: "start-prefix", spellcheck: "false", autocomplete: "off", placeholder: "all objects" });
  const button = el("button", { type: "submit", text: "Start prefetch" });
  const form = el("form", { class: "tools" },
    el("label", { for: "start-bucket", text: "Bucket" }), choice,
    el("label", { for: "start-prefix", text: "Names that begin with" }), prefix, button);
  const node = card("Prefetch a bucket", form);
  node.hidden = true;
  const buckets = new Map();

  getJson("/api/v1/warmth", { signal: context.signal }).then(async (reply) => {
    for (const { bucket, backed } of reply.buckets) {
      const uri = bucketUri(bucket);
      if (backed && (await context.can("run-jobs", uri))) buckets.set(uri, bucket);
    }
    choice.replaceChildren(...[...buckets.keys()].map((uri) => el("option", { value: uri, text: uri })));
    node.hidden = buckets.size === 0;
  }).catch(() => {
    node.hidden = true;
  });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const bucket = buckets.get(choice.value);
    if (!bucket || !(await confirmed(prefetchQuestion(choice.value, prefix.value), "Prefetch"))) return;
    button.disabled = true;
    try {
      notice(`${await startPrefetch(bucket, prefix.value)} was started.`);
    } catch (error) {
      notice(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  });
  return node;
}
