// Shows bytes of an object or of a member of a shard: as an image, as text, or as hexadecimal numbers. Bytes
// never become a page: images are shown by `img`, which runs no script of theirs, and text as text.

import { request } from "./api.js";
import { el } from "./dom.js";
import { bytes } from "./format.js";

const MAX_IMAGE_BYTES = 16 << 20;
const MAX_TEXT_BYTES = 64 << 10;
const MAX_HEX_BYTES = 512;
const IMAGES = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp",
  bmp: "image/bmp", avif: "image/avif", svg: "image/svg+xml", ico: "image/x-icon",
};

function extension(name) {
  return name.split("/").at(-1).split(".").at(-1).toLowerCase();
}

// Reads `length` bytes from `offset` on; an empty range is an empty array without a request.
async function readRange(path, offset, length, signal) {
  if (length <= 0) return new Uint8Array();
  const headers = { Range: `bytes=${offset}-${offset + length - 1}` };
  const answer = await request(path, { headers, signal });
  return new Uint8Array(await answer.arrayBuffer());
}

// The text of these bytes; null if they are no text. The last character may be cut.
function asText(data, isWhole) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: !isWhole });
    // eslint-disable-next-line no-control-regex
    return /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

function asHex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

function pretty(text, name, isWhole) {
  if (!isWhole || extension(name) !== "json") return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// A viewer; `show` replaces what it shows, and `close` releases it.
export function viewer() {
  const title = el("h2", { class: "view-title" });
  const facts = el("p", { class: "under" });
  const body = el("div", { class: "view" });
  const node = el("section", { class: "card viewer", "aria-label": "Contents" },
    el("div", { class: "card-head" }, title), facts, body);
  let url = null;
  let running = null;

  function release() {
    running?.abort();
    if (url) URL.revokeObjectURL(url);
    url = null;
  }

  function block(text, label) {
    return el("pre", { tabindex: "0", "aria-label": label, text });
  }

  // `item`: the name, the path to read, and the offset and size of its bytes there.
  node.show = async (item) => {
    release();
    running = new AbortController();
    const { signal } = running;
    title.textContent = item.name;
    facts.textContent = bytes(item.size);
    body.replaceChildren(el("p", { class: "empty", text: "Reading…" }));
    try {
      const type = IMAGES[extension(item.name)];
      const shown = type && item.size <= MAX_IMAGE_BYTES
        ? await image(item, type, signal) : await textOrHex(item, signal);
      if (!signal.aborted) body.replaceChildren(...shown);
    } catch (error) {
      if (signal.aborted) return;
      body.replaceChildren(el("p", { class: "problem", role: "alert", text: error.message }));
    }
  };

  async function image(item, type, signal) {
    const data = await readRange(item.path, item.offset, item.size, signal);
    if (signal.aborted) return [];
    url = URL.createObjectURL(new Blob([data], { type }));
    const picture = el("img", { src: url, alt: `The picture ${item.name}` });
    try {
      await picture.decode();
    } catch {
      return hex(item, data);
    }
    facts.textContent = `${bytes(item.size)}, ${picture.naturalWidth} × ${picture.naturalHeight} pixels`;
    return [picture];
  }

  async function textOrHex(item, signal) {
    const length = Math.min(item.size, MAX_TEXT_BYTES);
    const data = await readRange(item.path, item.offset, length, signal);
    const isWhole = length === item.size;
    const text = asText(data, isWhole);
    if (text === null) return hex(item, data);
    if (!isWhole) facts.textContent = `${bytes(item.size)}; the first ${bytes(length)} are shown`;
    return [block(pretty(text, item.name, isWhole), `Text of ${item.name}`)];
  }

  function hex(item, data) {
    const shown = data.subarray(0, MAX_HEX_BYTES);
    if (item.size > shown.length) facts.textContent = `${bytes(item.size)}; the first ${bytes(shown.length)} are shown`;
    return [block(asHex(shown), `Bytes of ${item.name}`)];
  }

  node.close = release;
  return node;
}
