// SPDX-License-Identifier: MIT
// Questions to the router. The key, if it wants one, lives in this tab's sessionStorage and goes in a header.

const KEY = "burthen-key";
let onLocked = () => {};

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const forgetKey = () => sessionStorage.removeItem(KEY);
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const whenLocked = (call) => (onLocked = call);

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message || `HTTP ${status}`);
    this.status = status;
    this.code = error?.code || "";
  }
}

function headers(more) {
  const key = sessionStorage.getItem(KEY);
  return key === null ? more : { ...more, Authorization: `Bearer ${key}` };
}

// An answer that is a success; else Refused, with what the router says. Paths are relative: a proxy may put the whole
// of it below a folder. Credentials are left out so that the browser asks for no password of its own.
export async function open(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers: headers(options.headers || {}) });
  if (answer.ok) return answer;
  const text = await answer.text().catch(() => "");
  if (answer.status === 401) onLocked();
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    error = { message: text.slice(0, 300) || `HTTP ${answer.status}` };
  }
  throw new Refused(answer.status, error);
}

export const get = async (path, signal) => (await open(path, { signal })).json();
export const post = (path, signal) => open(path, { method: "POST", signal });
export const encoded = (id) => id.split("/").map(encodeURIComponent).join("/");

export async function* textOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The events of text/event-stream. (EventSource sends no header, so it could send no key.)
export async function* eventsOf(answer, onPiece = () => {}) {
  let rest = "";
  let event = { data: "" };
  for await (const piece of textOf(answer)) {
    onPiece();
    const lines = (rest + piece).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data !== "") yield event;
        event = { data: "" };
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (name === "data") event.data += (event.data ? "\n" : "") + value;
      else if (name) event[name] = value;
    }
  }
}

export const pause = (ms, signal) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end); // the signal may live for days
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });

const SILENT_MS = 45000; // the router says at least a comment every 15 s

// A signal that fires when nothing has been heard for too long.
function silence() {
  const over = new AbortController();
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => over.abort(), SILENT_MS);
  };
  heard();
  return { signal: over.signal, heard, end: () => clearTimeout(timer) };
}

// Everything that happens, from the oldest that is kept on; comes back by itself with the last id that it saw.
export async function follow(onEvent, onState, signal) {
  let last = 0;
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 15000)) {
    const silent = silence();
    try {
      const more = last > 0 ? { "Last-Event-ID": String(last) } : {};
      const answer = await open("api/events", { signal: AbortSignal.any([signal, silent.signal]), headers: { Accept: "text/event-stream", ...more } });
      onState(true);
      for await (const event of eventsOf(answer, silent.heard)) {
        wait = 500;
        const told = JSON.parse(event.data);
        const anew = event.id !== undefined && told.id <= last; // another life of the router
        if (event.id !== undefined) last = told.id; // what is not kept has none
        try {
          onEvent(told, anew);
        } catch (error) {
          console.error(error); // of our own making: the next one may do
        }
      }
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
    } finally {
      silent.end();
    }
    onState(false);
    await pause(wait, signal);
  }
}
