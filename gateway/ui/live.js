// The figures of the cluster, once a second by server-sent events, and those of the last minutes.

import { readEvents } from "./api.js";

const KEPT_EVENTS = 300;
const RETRY_MS = [500, 1000, 2000, 5000];
// Without an event for this long the page counts as cut off.
const SILENCE_MS = 4000;

export class Live {
  constructor() {
    this.latest = null;
    this.history = [];
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
  }

  async run(signal) {
    let tries = 0;
    while (!signal.aborted) {
      try {
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
    this.history.push({ atMs: Date.now(), cluster: overview.cluster });
    if (this.history.length > KEPT_EVENTS) this.history.shift();
    this.state = "live";
    this.problem = "";
    this.changed();
  }
}
