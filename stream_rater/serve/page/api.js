// The API of this service: questions, the token, and the stream of changes.

const ROOT = new URL("v1/", document.baseURI);
const TOKEN = "stream-rater-token";
const LONGEST_PAUSE_MS = 30_000;
const KEPT_TIMES = 50;

/** What the API refuses. `code` is that of the reference, or "unreachable". */
export class Refused extends Error {
  constructor(code, detail) {
    super(detail);
    this.code = code;
  }
}

const times = [];

/** The median time of the last answers, in milliseconds; undefined before the first. */
export const answerTime = () => median(times);

export function median(values) {
  return values.length ? [...values].sort((a, b) => a - b)[values.length >> 1] : undefined;
}

export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** A part of a path. The colon of `players:lookup` is one of the API's own. */
const encoded = (part) => (part === "players:lookup" ? part : encodeURIComponent(part));

/** GET a path under v1/, whose parts are ids, with a query. Rejects with Refused. */
export async function get(parts, query = {}) {
  const began = performance.now();
  const answer = await request(parts, query);
  const found = await answer.json();
  times.push(performance.now() - began);
  times.splice(0, times.length - KEPT_TIMES);
  return found;
}

/** POST a question. Rejects with Refused. */
export async function post(parts, body) {
  const found = await request(parts, {}, {}, undefined, JSON.stringify(body));
  return found.json();
}

async function request(parts, query, more = {}, signal = undefined, body = undefined) {
  const url = new URL(parts.map(encoded).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...more, ...(token && { Authorization: `Bearer ${token}` }) };
  let answer;
  try {
    answer = await fetch(url, { headers, signal, body, method: body ? "POST" : "GET" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("unreachable", "The service cannot be reached.");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(problem.code ?? "unknown", problem.detail ?? `HTTP ${answer.status}`);
}

/**
 * Follow a ladder's changes until `close()`. `onChange(change)` gets each event of rating-changed,
 * `reset()` is called if some may have been missed, `state(text)` when the connection changes.
 * EventSource cannot send a token, so the stream is read here.
 */
export function follow(ladder, { onChange, reset, state }) {
  const stop = new AbortController();
  let lastId = "";
  let pauseMs = 500;

  async function once() {
    const headers = lastId ? { "Last-Event-ID": lastId } : {};
    const answer = await request(["ladders", ladder, "changes"], {}, headers, stop.signal);
    state("live");
    if (!lastId) reset(); // what was shown may be older than the stream
    pauseMs = 500;
    for await (const event of events(answer.body)) {
      lastId = event.id || lastId;
      if (event.event === "reset") reset();
      else if (event.event === "rating-changed") onChange(JSON.parse(event.data));
    }
  }

  async function run() {
    while (!stop.signal.aborted) {
      let why = "reconnecting";
      try {
        await once();
      } catch (error) {
        if (stop.signal.aborted) return;
        why = { unauthorized: "no token", "unknown-ladder": "no ratings yet" }[error.code] ?? why;
      }
      if (stop.signal.aborted) return;
      state(why);
      await new Promise((done) => setTimeout(done, pauseMs * (0.5 + Math.random())));
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  run();
  return { close: () => stop.abort() };
}

/** The server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) yield parsed(block);
  }
}

function parsed(block) {
  const found = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
  }
  return found;
}
