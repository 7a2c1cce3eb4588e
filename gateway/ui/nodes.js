// Nodes and disks, and the data that moves between them.

import { badge, card, el, meter, once, setBadge, setText, table } from "./dom.js";
import { byteRate, bytes, duration, latency, percent, rate } from "./format.js";
import { drawProgress } from "./overview.js";

// Jobs that move data between nodes or disks.
const MOVES = {
  rebalance: "Objects move to the targets that own them now",
  resilver: "Objects move between the disks of a target",
  "make-copies": "Copies are made on other targets",
  "put-copies": "Copies are made on other targets",
  "ec-encode": "Objects are encoded into slices on other targets",
};
const NODE_STATES = {
  alive: ["Alive", "good"],
  draining: ["Draining", "warn"],
  drained: ["Drained", "warn"],
  down: ["Down", "bad"],
};
const DISK_STATES = {
  in_use: ["In use", "good"],
  leaving: ["Leaving: its objects move away", "warn"],
  away: ["Away", "bad"],
  mending: ["Its index is rebuilt", "warn"],
  disabled: ["Disabled", ""],
};
const NEARLY_FULL = 0.9;

function stateOf(node) {
  const [text, kind] = NODE_STATES[node.state] ?? [node.state, "warn"];
  return node.answered || kind === "bad" ? [text, kind] : ["No answer", "bad"];
}

export function nodes(root) {
  const all = table("Nodes", [
    { title: "Node", draw: (cell, row) => {
      const box = once(cell, () => {
        const [name, url] = [el("strong"), el("span", { class: "under" })];
        return Object.assign(el("div", null, name, url), { name, url });
      });
      setText(box.name, row.node.id);
      setText(box.url, row.node.url);
    } },
    { title: "Role", text: (row) => (row.node.leads ? `${row.node.role}, leads` : row.node.role) },
    { title: "State", draw: (cell, row) => setBadge(once(cell, () => badge("", "")), ...stateOf(row.node)) },
    { title: "Requests", number: true, text: (row) => rate(row.node.requests_per_s) },
    { title: "Errors", number: true, text: (row) => rate(row.node.errors_per_s) },
    { title: "Read", number: true, text: (row) => byteRate(row.node.read_bytes_per_s) },
    { title: "Written", number: true, text: (row) => byteRate(row.node.written_bytes_per_s) },
    { title: "Hit rate", number: true, text: (row) => percent(row.node.hit_rate) },
    { title: "p99", number: true, text: (row) => latency(row.node.p99_s) },
    { title: "Processor", number: true, text: (row) => (row.node.answered ? percent(row.node.cpu_percent / 100) : "–") },
    { title: "Memory", number: true, text: (row) => (row.node.answered ? bytes(row.node.memory_bytes) : "–") },
  ], { empty: "Waiting for the figures of the nodes…" });
  const disks = table("Disks", [
    { title: "Target", text: (row) => row.node.id },
    { title: "Disk", draw: (cell, row) => setText(once(cell, () => el("code")), row.disk.path) },
    { title: "State", draw: (cell, row) => {
      const known = DISK_STATES[row.disk.state] ?? [row.disk.state, "warn"];
      setBadge(once(cell, () => badge("", "")), ...(row.node.answered ? known : ["Unknown", ""]));
    } },
    { title: "Use", draw: (cell, row) => {
      const { used_bytes: used, size_bytes: size } = row.disk;
      const share = size > 0 ? used / size : 0;
      const text = `${percent(share)} of the space is used`;
      once(cell, () => meter(text)).show(share, text, share >= NEARLY_FULL ? "warn" : "");
    } },
    { title: "Used", number: true, text: (row) => bytes(row.disk.used_bytes) },
    { title: "Size", number: true, text: (row) => bytes(row.disk.size_bytes) },
  ], { empty: "No target has reported its disks." });
  const moves = table("What moves", [
    { title: "Move", draw: (cell, row) => {
      const box = once(cell, () => {
        const [name, why] = [el("strong"), el("span", { class: "under" })];
        return Object.assign(el("div", null, name, why), { name, why });
      });
      setText(box.name, row.name);
      setText(box.why, row.why);
    } },
    { title: "Where", text: (row) => row.where },
    { title: "Progress", draw: (cell, row) => {
      if (row.job) drawProgress(cell, row.job);
      else setText(cell, row.left);
    } },
    { title: "Time left", number: true, text: (row) => duration(row.job?.eta_s ?? null) },
  ], { empty: "Nothing moves: every object is where it belongs." });

  root.append(card("All nodes", all), card("What moves", moves), card("Disks", disks));

  function moving({ nodes, jobs }) {
    const found = jobs.filter((job) => job.state === "running" && job.kind in MOVES).map((job) => ({
      key: job.id, name: job.kind, why: MOVES[job.kind], where: job.bucket ?? "the cluster", job,
    }));
    for (const node of nodes) {
      if (node.state === "draining") {
        const used = (node.disks ?? []).reduce((sum, disk) => sum + disk.used_bytes, 0);
        found.push({
          key: `drain ${node.id}`, name: "drain", why: "The objects of a target move to the others",
          where: node.id, left: `${bytes(used)} left`,
        });
      }
      for (const disk of node.disks ?? []) {
        if (disk.state === "leaving") {
          found.push({
            key: `disk ${node.id} ${disk.path}`, name: "detach", why: "The objects of a disk move to the others",
            where: `${node.id}, ${disk.path}`, left: `${bytes(disk.used_bytes)} left`,
          });
        }
      }
    }
    return found;
  }

  return {
    update(live) {
      const now = live.latest;
      if (!now) return;
      all.show(now.nodes.map((node) => ({ key: node.id, node })));
      disks.show(now.nodes.flatMap((node) =>
        (node.disks ?? []).map((disk) => ({ key: `${node.id} ${disk.path}`, node, disk }))));
      moves.show(moving(now));
    },
  };
}
