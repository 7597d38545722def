// SPDX-License-Identifier: MIT
// What the router or a model says, as it says it. Paused, lines are kept back and come when it goes on.

import { encoded, open, pause, textOf } from "./api.js";
import { byId, setText, whenSeen } from "./dom.js";

const KEPT = 200000; // characters shown
let reading = null;
let paused = false;
let held = "";

function put(text) {
  const place = byId("log-text");
  const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
  let all = place.textContent + text;
  if (all.length > KEPT) all = all.slice(all.indexOf("\n", all.length - KEPT) + 1);
  place.textContent = all;
  if (atEnd) place.scrollTop = place.scrollHeight;
}

function take(text) {
  if (!paused) return put(text);
  held = (held + text).slice(-KEPT);
  setText(byId("log-state"), `${held.split("\n").length - 1} lines wait`);
}

async function read() {
  reading?.abort();
  const mine = (reading = new AbortController());
  const source = byId("log-source").value;
  let wait = 1000;
  while (!mine.signal.aborted) {
    held = "";
    byId("log-text").textContent = "";
    try {
      const answer = await open(`logs/stream${source ? `/${encoded(source)}` : ""}`, { signal: mine.signal });
      setText(byId("log-state"), "live");
      wait = 1000;
      for await (const text of textOf(answer)) {
        if (mine.signal.aborted) return;
        take(text);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      setText(byId("log-state"), error.message);
      if (error.status === 401) return;
    }
    await pause(wait, mine.signal);
    wait = Math.min(wait * 2, 15000);
  }
}

export function beginLogs() {
  const button = byId("log-pause");
  byId("log-source").addEventListener("change", read);
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    setText(byId("log-state"), paused ? "paused" : "live");
    if (!paused) put(held);
    held = "";
  });
  whenSeen(byId("logs"), read);
}
