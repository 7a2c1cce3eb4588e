// Elements and tables. Text of the cluster is only ever set as text: names of objects come from anybody.

const SVG = "http://www.w3.org/2000/svg";

// Sets properties that have a JavaScript setter, and attributes by name. A value of null sets nothing.
function decorate(node, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

// An element with attributes and children; a child that is a string becomes text.
export function el(tag, attributes, ...children) {
  const node = decorate(document.createElement(tag), attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function svg(tag, attributes, ...children) {
  const node = decorate(document.createElementNS(SVG, tag), attributes);
  node.append(...children);
  return node;
}

// Changes the text of a node only if it differs, so that a selection survives an update.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// A section with a heading; `aside` stands at the right of the heading.
export function card(title, children, { aside = null, level = 2, wide = false } = {}) {
  const heading = el(`h${level}`, { text: title });
  const head = el("div", { class: "card-head" }, heading, aside);
  return el("section", { class: wide ? "card wide" : "card" }, head, ...[children].flat());
}

// A label with a colour and a shape, such as the state of a node: the text alone has the meaning.
export function badge(text, kind) {
  return el("span", { class: `badge ${kind}`, text });
}

export function setBadge(node, text, kind) {
  setClass(node, `badge ${kind}`);
  setText(node, text);
}

// A bar of a share in 0..1 with its text for screen readers.
export function meter(label) {
  const fill = el("span", { class: "meter-fill" });
  const node = el("span", { class: "meter", role: "img", "aria-label": label }, fill);
  node.show = (share, text, kind = "") => {
    const bounded = Math.min(1, Math.max(0, share || 0));
    fill.style.width = `${(bounded * 100).toFixed(1)}%`;
    setClass(node, `meter ${kind}`);
    node.setAttribute("aria-label", text);
  };
  return node;
}

// A table whose rows are kept by key: an update changes cells and never moves the focus.
// Columns: { title, number, text(row) } or { title, number, draw(cell, row) }.
export function table(label, columns, { empty = "Nothing here.", onOpen = null } = {}) {
  const body = el("tbody");
  const none = el("p", { class: "empty", text: empty });
  const titles = columns.map(({ title, number, hidden }) =>
    el("th", { scope: "col", class: number ? "number" : null },
      hidden ? el("span", { class: "unseen", text: title }) : title));
  const grid = el("table", { "aria-label": label }, el("thead", null, el("tr", null, titles)), body);
  const scroll = el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, grid);
  const node = el("div", { class: "table" }, scroll, none);
  const known = new Map();

  function make(row) {
    const cells = columns.map(({ number }) => el("td", { class: number ? "number" : null }));
    const line = el("tr", null, cells);
    return { line, cells, row };
  }

  // Rows: { key, … } in the order to show.
  node.show = (rows) => {
    const seen = new Set();
    rows.forEach((row, at) => {
      seen.add(row.key);
      let entry = known.get(row.key);
      if (!entry) known.set(row.key, (entry = make(row)));
      entry.row = row;
      columns.forEach((column, index) => {
        const cell = entry.cells[index];
        if (column.draw) column.draw(cell, row);
        else setText(cell, column.text(row));
      });
      if (body.children[at] !== entry.line) body.insertBefore(entry.line, body.children[at] ?? null);
    });
    for (const [key, entry] of known) {
      if (!seen.has(key)) {
        entry.line.remove();
        known.delete(key);
      }
    }
    scroll.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  };
  node.setEmpty = (text) => setText(none, text);
  scroll.hidden = true;
  return node;
}

// The one child of a cell, made at the first call.
export function once(cell, make) {
  if (!cell.firstChild) cell.append(make());
  return cell.firstChild;
}

let noticed = null;

// A message that goes away by itself; failures stay longer.
export function notice(text, kind = "good") {
  const area = document.getElementById("notices");
  const node = el("p", { class: `notice ${kind}`, text });
  area.replaceChildren(node);
  clearTimeout(noticed);
  noticed = setTimeout(() => node.remove(), kind === "bad" ? 12000 : 6000);
}

// Asks for consent in a modal dialog; resolves to whether it was given.
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const done = (answer) => () => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const buttons = el("div", { class: "buttons" },
      el("button", { type: "button", class: "quiet", text: "Keep it", onclick: done(false), autofocus: true }),
      el("button", { type: "button", class: "danger", text: yes, onclick: done(true) }));
    const dialog = el("dialog", { "aria-labelledby": "question", oncancel: done(false) },
      el("p", { id: "question", text: question }), buttons);
    document.body.append(dialog);
    dialog.showModal();
  });
}
