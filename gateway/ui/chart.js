// Line charts of the last five minutes, as inline SVG.

import { el, setText, svg } from "./dom.js";
import { HISTORY_MS as WINDOW_MS } from "./live.js";

const HEIGHT = 150;
const TOP = 10;
const BOTTOM = 22;
const LEFT = 64;
const RIGHT = 8;

// The smallest round number that is not below `value`.
function roundUp(value, base) {
  if (value <= 0) return base;
  const power = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(value) / Math.log(1024))) : 1;
  const scaled = value / power;
  const ten = 10 ** Math.floor(Math.log10(scaled));
  const step = [1, 2, 5, 10].find((step) => step * ten >= scaled) ?? 10;
  return step * ten * power;
}

// A chart of `series`: [{ name, kind, of(cluster) }]; values of null leave a gap.
export function lineChart({ title, series, format, max = null, base = 10, floor = 0 }) {
  const legend = el("ul", { class: "legend" });
  const shown = series.map(({ name, kind }) => {
    const value = el("strong", { class: "figure", text: "–" });
    legend.append(el("li", null, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), `${name} `, value));
    return value;
  });
  const drawing = svg("svg", { class: "chart", role: "img", height: HEIGHT, "aria-label": title });
  const node = el("section", { class: "card" },
    el("div", { class: "card-head" }, el("h2", { text: title }), legend), drawing);

  const grid = svg("g", { class: "grid" });
  const lines = series.map(({ kind }) => svg("path", { class: `line ${kind}` }));
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  drawing.append(grid, ...lines, cursor);

  let history = [];
  let pointed = null;

  function x(atMs, nowMs, width) {
    return LEFT + (1 - (nowMs - atMs) / WINDOW_MS) * (width - LEFT - RIGHT);
  }

  function draw() {
    const width = Math.max(240, drawing.clientWidth || 480);
    const nowMs = history.at(-1)?.atMs ?? Date.now();
    const points = history.filter(({ atMs }) => nowMs - atMs <= WINDOW_MS);
    const values = points.map(({ cluster }) => series.map(({ of }) => of(cluster) ?? null));
    const largest = Math.max(floor, ...values.flat().filter((value) => value !== null));
    const top = max ?? roundUp(largest, base);
    const y = (value) => TOP + (1 - Math.min(1, value / top)) * (HEIGHT - TOP - BOTTOM);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    drawGrid(width, top, y);
    lines.forEach((line, index) => {
      let path = "";
      let isOpen = false;
      points.forEach(({ atMs }, at) => {
        const value = values[at][index];
        if (value === null) isOpen = false;
        else {
          path += `${isOpen ? "L" : "M"}${x(atMs, nowMs, width).toFixed(1)} ${y(value).toFixed(1)}`;
          // A value between two gaps is a dot.
          if (!isOpen && (values[at + 1]?.[index] ?? null) === null) path += "h0.1";
          isOpen = true;
        }
      });
      line.setAttribute("d", path);
    });
    const at = pointed === null ? points.length - 1 : nearest(points, nowMs, width);
    const now = values[at] ?? series.map(() => null);
    shown.forEach((value, index) => setText(value, now[index] === null ? "–" : format(now[index])));
    cursor.setAttribute("visibility", pointed === null || at < 0 ? "hidden" : "visible");
    if (at >= 0) {
      const position = x(points[at].atMs, nowMs, width);
      cursor.setAttribute("x1", position);
      cursor.setAttribute("x2", position);
    }
    const texts = series.map(({ name }, index) => `${name} ${shown[index].textContent}`);
    drawing.setAttribute("aria-label", `${title} of the last five minutes; now ${texts.join(", ")}`);
  }

  function nearest(points, nowMs, width) {
    let best = -1;
    let distance = Infinity;
    points.forEach(({ atMs }, at) => {
      const far = Math.abs(x(atMs, nowMs, width) - pointed);
      if (far < distance) [best, distance] = [at, far];
    });
    return best;
  }

  // A round number without the zeros behind its point.
  function mark(value) {
    return value === 0 ? "0" : format(value).replace(/\.0+(?= |$)/, "");
  }

  function drawGrid(width, top, y) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(top * share);
      parts.push(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      parts.push(svg("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end", text: mark(top * share) }));
    }
    const marks = [[0, "−5 min", "start"], [0.5, "−2:30", "middle"], [1, "now", "end"]];
    for (const [share, text, anchor] of marks) {
      const at = LEFT + share * (width - LEFT - RIGHT);
      parts.push(svg("text", { x: at, y: HEIGHT - 5, "text-anchor": anchor, text }));
    }
    grid.replaceChildren(...parts);
  }

  drawing.addEventListener("pointermove", (event) => {
    pointed = event.clientX - drawing.getBoundingClientRect().left;
    draw();
  });
  drawing.addEventListener("pointerleave", () => {
    pointed = null;
    draw();
  });
  node.show = (points) => {
    history = points;
    draw();
  };
  return node;
}
