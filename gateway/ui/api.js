// Requests to this gateway. The token stays in memory: a reload of the page asks for the login again, and
// no other page of this origin can read it.

let token = null;
let onDenied = () => {};

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(value) {
  token = value;
}

// Called when a request needs a login.
export function whenDenied(callback) {
  onDenied = callback;
}

function withToken(headers) {
  return token === null ? headers : { ...headers, Authorization: `Bearer ${token}` };
}

// The text of a failed answer: its message, else its status.
async function failure(answer) {
  const text = await answer.text().catch(() => "");
  let message = text.trim();
  try {
    const body = JSON.parse(text);
    message = body.message ?? body.error?.message ?? message;
  } catch {
    // Not JSON: the text itself.
  }
  return new ApiError(answer.status, message || `the gateway answered ${answer.status}`);
}

export async function request(path, { method = "GET", json, headers = {}, signal, isLogin = false } = {}) {
  const options = { method, signal, cache: "no-store", headers: withToken(headers), redirect: "error" };
  if (json !== undefined) {
    options.body = JSON.stringify(json);
    options.headers = { ...options.headers, "Content-Type": "application/json" };
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "no answer from the gateway");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && !isLogin) onDenied();
  throw await failure(answer);
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

// Calls `onEvent(name, data)` for each server-sent event until the stream ends. EventSource sends no
// headers, so the stream is read here.
export async function readEvents(path, onEvent, signal) {
  const answer = await request(path, { headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value.replaceAll("\r\n", "\n");
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      dispatch(rest.slice(0, end), onEvent);
      rest = rest.slice(end + 2);
    }
  }
}

function dispatch(block, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  if (data.length > 0) onEvent(name, data.join("\n"));
}

const rights = new Map();

// Whether the user has a right, on a bucket if its URI is given. The answer is kept until the next login.
export async function can(right, bucket = "") {
  const key = `${right} ${bucket}`;
  if (!rights.has(key)) {
    const query = new URLSearchParams({ right });
    if (bucket) query.set("bucket", bucket);
    const asked = getJson(`/api/v1/auth/can-i?${query}`).then((reply) => reply.allowed);
    rights.set(key, asked.catch(() => {
      rights.delete(key);
      return false;
    }));
  }
  return rights.get(key);
}

export function forgetRights() {
  rights.clear();
}
