// Figures and times as text.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const COUNTS = ["", "k", "M", "G", "T"];

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[unit]];
}

export function bytes(value) {
  return scaled(value ?? 0, 1024, BYTES).join(" ");
}

export function byteRate(value) {
  return `${bytes(value)}/s`;
}

// A number with thousands separated, exact.
export function count(value) {
  return Math.round(value ?? 0).toLocaleString("en");
}

export function rate(value) {
  if (!value) return "0/s";
  if (value < 10) return `${value.toFixed(value < 0.1 ? 2 : 1)}/s`;
  const [text, unit] = scaled(value, 1000, COUNTS);
  return `${text}${unit ? ` ${unit}` : ""}/s`;
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value >= 99.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)} %`;
}

// A latency in seconds.
export function latency(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

// A duration in seconds, in its two largest units.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Unix nanoseconds as local date and time.
export function moment(ns) {
  if (!ns) return "–";
  const date = new Date(ns / 1e6);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function ago(ns) {
  return ns ? `${duration(Math.max(0, Date.now() / 1000 - ns / 1e9))} ago` : "–";
}

// URI schemes of providers; the others are called as their scheme.
const SCHEMES = { aws: "s3", gcp: "gs", azure: "az" };

// The URI of a bucket, as everywhere in Forebay.
export function bucketUri(bucket) {
  const { uuid = "", name = "" } = bucket.namespace ?? {};
  const space = `${uuid ? `@${uuid}` : ""}${name ? `#${name}` : ""}`;
  return `${SCHEMES[bucket.provider] ?? bucket.provider}://${space ? `${space}/` : ""}${bucket.name}`;
}

// The bucket of a row that has its provider, name and URI.
export function bucketOfUri({ provider, name, uri }) {
  const [, uuid = "", space = ""] = /^\w+:\/\/(?:@([^#/]*))?(?:#([^/]*))?\//.exec(uri) ?? [];
  return { provider, name, namespace: { uuid, name: space } };
}

// The query that names a bucket's provider and namespace in requests.
export function bucketQuery(bucket) {
  const query = new URLSearchParams({ provider: bucket.provider });
  const { uuid = "", name = "" } = bucket.namespace ?? {};
  if (uuid || name) query.set("namespace", `@${uuid}#${name}`);
  return query;
}

// A name in a path: each part encoded, slashes kept.
export function encodePath(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}
