// The figures of the cluster, once a second by server-sent events, and those of the last minutes: before
// its first event the page gets what the nodes kept.

import { getJson, readEvents } from "./api.js";

export const HISTORY_MS = 300_000;
const RETRY_MS = [500, 1000, 2000, 5000];
// Without an event for this long the page counts as cut off.
const SILENCE_MS = 4000;

export class Live {
  constructor() {
    this.latest = null;
    this.history = [];
    // Why a part of the last minutes is missing, and until when that part is shown.
    this.gap = { text: "", untilMs: 0 };
    this.state = "connecting";
    this.problem = "";
    this.listeners = new Set();
    this.stop = null;
    this.lastEventMs = 0;
  }

  // Calls `listener` after each event and each change of the connection; returns a function that ends it.
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    for (const listener of this.listeners) listener();
  }

  become(state, problem = "") {
    if (this.state === state && this.problem === problem) return;
    this.state = state;
    this.problem = problem;
    this.changed();
  }

  start() {
    this.end();
    const stop = new AbortController();
    this.stop = stop;
    this.watch = setInterval(() => {
      const silent = performance.now() - this.lastEventMs > SILENCE_MS;
      if (this.state === "live" && silent) this.become("cut off", "no figures from the gateway");
    }, 500);
    this.run(stop.signal);
  }

  end() {
    this.stop?.abort();
    clearInterval(this.watch);
  }

  forget() {
    this.end();
    this.latest = null;
    this.history = [];
    this.gap = { text: "", untilMs: 0 };
  }

  async run(signal) {
    let tries = 0;
    while (!signal.aborted) {
      try {
        if (this.state !== "refused") this.readHistory(signal);
        await readEvents("/api/v1/overview/live", (name, data) => {
          if (name !== "overview") return;
          tries = 0;
          this.take(JSON.parse(data));
        }, signal);
        // A gateway ends each stream after some minutes, and the next one begins at once.
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401) return;
        this.become(error.status === 403 ? "refused" : "cut off", error.message);
      }
      const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
      tries += 1;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  take(overview) {
    this.lastEventMs = performance.now();
    this.latest = overview;
    this.merge([{ atMs: Date.now(), cluster: overview.cluster }]);
    this.state = "live";
    this.problem = "";
    this.changed();
  }
  // Gets the last minutes for the times in which this page had no events. The clock of the gateway may
  // differ from that of the browser, so only the age of a point counts.
  async readHistory(signal) {
    const beginMs = Date.now();
    if (beginMs - (this.history.at(-1)?.atMs ?? 0) < 2000) return;
    try {
      const found = await getJson("/api/v1/overview/history", { signal });
      const spanMs = found.interval_s * 1000;
      const collectedMs = Date.parse(found.at);
      const points = found.points.map(({ at, ...cluster }) =>
        ({ atMs: Date.now() - (collectedMs - Date.parse(at)), cluster }));
      const own = this.history.map(({ atMs }) => atMs);
      this.merge(points.filter(({ atMs }) => !own.some((ownMs) => Math.abs(ownMs - atMs) < spanMs)));
      const silent = found.silent_nodes.join(", ");
      this.note(silent && `The lines from before this page was opened are without ${silent}: no answer.`, beginMs);
    } catch (error) {
      if (signal.aborted || error.status === 401 || error.status === 403) return;
      this.note(`The last minutes before this page was opened are missing: ${error.message}.`, beginMs);
    }
    this.changed();
  }

  note(text, beginMs) {
    this.gap = { text, untilMs: beginMs + HISTORY_MS };
  }

  merge(points) {
    const oldestMs = Date.now() - HISTORY_MS;
    this.history = [...this.history, ...points].filter(({ atMs }) => atMs >= oldestMs);
    this.history.sort((a, b) => a.atMs - b.atMs);
  }
}
