// The contents of an object: of a shard its members, each read by its range of bytes; of others the object.

import { getJson } from "./api.js";
import { card, el, setText } from "./dom.js";
import { bucketQuery, bucketUri, bytes, count, encodePath } from "./format.js";
import { bucketOf, objectsLink } from "./buckets.js";
import { viewer } from "./content.js";

const ARCHIVES = /\.(tar|tgz|tar\.gz|tar\.lz4|tar\.zst|zip)$/i;
const SHOWN_MEMBERS = 300;

export function shard(root, context) {
  const bucket = bucketOf(context.params);
  const name = context.params.get("name") ?? "";
  const size = Number(context.params.get("size") ?? 0);
  const query = bucketQuery(bucket);
  const path = `/api/v1/content/${encodeURIComponent(bucket.name)}/${encodePath(name)}?${query}`;
  const folder = name.slice(0, name.lastIndexOf("/") + 1);
  context.setTitle(name.slice(folder.length) || name);

  const view = viewer();
  const trail = el("nav", { "aria-label": "Where this is" }, el("ol", { class: "trail" },
    el("li", null, el("a", { href: "#/buckets", text: "Buckets" })),
    el("li", null, el("a", { href: objectsLink(bucket), text: bucketUri(bucket) })),
    folder ? el("li", null, el("a", { href: objectsLink(bucket, folder), text: folder })) : null));
  root.append(trail);

  if (!ARCHIVES.test(name)) {
    root.append(view);
    view.show({ name, path, offset: 0, size });
    return { close: view.close };
  }
  const members = memberList(bucket, name, path, view, context);
  root.append(el("div", { class: "split" }, members, view));
  return { close: view.close };
}

// The members of a shard as a list box: arrow keys move through it, and the member is shown at once.
function memberList(bucket, name, path, view, context) {
  const summary = el("p", { class: "under", text: "Reading the index…" });
  const field = el("input", { id: "member", type: "search", spellcheck: "false", autocomplete: "off" });
  const list = el("ul", { class: "members", role: "listbox", tabindex: "0", "aria-label": "Members" });
  const more = el("button", { type: "button", class: "quiet", text: "Show more", hidden: true });
  const filter = el("div", { class: "tools" }, el("label", { for: "member", text: "Names that contain" }), field);
  let all = [];
  let fitting = [];
  let shown = 0;
  let chosen = -1;
  let format = "";

  function item(member, at) {
    const id = `member-${at}`;
    return el("li", { id, role: "option", "aria-selected": "false", "data-at": at },
      el("span", { class: "name", text: member[0] }), el("span", { class: "figure", text: bytes(member[2]) }));
  }

  function append() {
    const until = Math.min(fitting.length, shown + SHOWN_MEMBERS);
    for (; shown < until; shown += 1) list.append(item(fitting[shown], shown));
    more.hidden = shown >= fitting.length;
  }

  function restart() {
    const text = field.value.toLowerCase();
    fitting = text ? all.filter(([member]) => member.toLowerCase().includes(text)) : all;
    shown = 0;
    chosen = -1;
    list.replaceChildren();
    list.removeAttribute("aria-activedescendant");
    append();
    setText(summary, `${count(fitting.length)} of ${count(all.length)} members`);
    if (fitting.length > 0) choose(0);
  }

  // A member of a TAR lies in the shard as it is; others are unpacked by the target.
  function choose(at) {
    if (at < 0 || at >= shown || at === chosen) return;
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = at;
    const line = list.children[at];
    line.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", line.id);
    line.scrollIntoView({ block: "nearest" });
    const [member, offset, size] = fitting[at];
    const isPlain = format === "tar";
    const packed = `${path}&archpath=${encodeURIComponent(member)}`;
    view.show({ name: member, path: isPlain ? path : packed, offset: isPlain ? offset : 0, size });
  }

  const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  list.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    if (chosen + step >= shown) append();
    choose(Math.max(0, Math.min(shown - 1, chosen + step)));
  });
  list.addEventListener("click", (event) => {
    const line = event.target.closest("li");
    if (line) choose(Number(line.dataset.at));
  });
  more.addEventListener("click", append);
  field.addEventListener("input", restart);

  const index = `/api/v1/members/${encodeURIComponent(bucket.name)}/${encodePath(name)}?${bucketQuery(bucket)}`;
  getJson(index, { signal: context.signal }).then((reply) => {
    ({ format, members: all } = reply);
    restart();
    setText(summary, `${count(all.length)} members in ${bytes(reply.size)}, ${format}`);
  }).catch((error) => {
    if (error.name === "AbortError") return;
    summary.className = "problem";
    summary.setAttribute("role", "alert");
    setText(summary, error.message);
  });
  return card("Members", [summary, filter, list, more]);
}
