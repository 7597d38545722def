// SPDX-License-Identifier: MIT
// The page: asks the router what is, follows what happens, hands both to the parts that show it.

import { follow, forgetKey, get, hasKey, keepKey, pause, whenLocked } from "./api.js";
import { beginChat, chatWith } from "./chat.js";
import { byId, setAttribute, setOptions, setText, show } from "./dom.js";
import { addEvent, beginEvents, forgetEvents, renderEvents, showLast } from "./events.js";
import { beginLogs } from "./logs.js";
import { showMemory } from "./memory.js";
import { beginModels, showModels } from "./models.js";
import { beginPlan } from "./plan.js";
import { addRow, setRows, showRunning } from "./requests.js";

const TICK_MS = 1000;
const SOON_MS = 50;
const LOOK_MS = 5000; // a router that says nothing for so long is not there
const THEME = "burthen-theme";
const SETTLE_MS = 600; // events that come within it of a connection's begin are history
let running = null; // the AbortController of all that is followed
let metas = new Map();
let stale = false; // something has happened since the last look began
let nap = null;    // the AbortController of the pause between two looks
let begun = false;
let needs = ""; // of all models, as last told: what is known of a file comes with them

// ---- the key ----

function lock() {
  running?.abort();
  running = null;
  const wrong = hasKey();
  forgetKey();
  for (const id of ["content", "sections"]) show(byId(id), false);
  show(byId("key"), true);
  show(byId("forget"), false);
  setLink("locked", "Key needed");
  setText(byId("key-error"), wrong ? "That key was not accepted." : "");
  byId("key-input").value = "";
  byId("key-input").focus();
}

function beginKey() {
  whenLocked(lock);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey(byId("key-input").value.trim());
    start();
  });
  byId("forget").addEventListener("click", () => {
    forgetKey();
    location.reload();
  });
}

// ---- the theme ----

function beginTheme() {
  const select = byId("theme");
  const set = () => (select.value ? (document.documentElement.dataset.theme = select.value) : delete document.documentElement.dataset.theme);
  try {
    select.value = localStorage.getItem(THEME) || "";
  } catch {
    select.value = "";
  }
  set();
  select.addEventListener("change", () => {
    set();
    try {
      localStorage.setItem(THEME, select.value);
    } catch {
      // not kept, then
    }
  });
}

// ---- what is ----

function setLink(state, text) {
  setText(byId("link"), text);
  setAttribute(byId("link"), "data-state", state);
}

async function lookAtModels(signal) {
  const list = (await get("v1/models", signal)).data;
  metas = new Map(list.map((one) => [one.id, one.meta]));
  setOptions(byId("chat-model"), list.filter((one) => !one.meta?.embeds).map((one) => [one.id, one.name ? `${one.name} (${one.id})` : one.id]));
  const files = list.filter((one) => one.meta?.architecture);
  setOptions(byId("plan-model"), (files.length > 0 ? files : list).map((one) => [one.id, one.id]));
  setOptions(byId("log-source"), [["", "the router"], ...list.filter((one) => one.owned_by === "burthen").map((one) => [one.id, one.id])]);
}

async function look(all) {
  const signal = AbortSignal.any([all, AbortSignal.timeout(LOOK_MS)]);
  const told = await get("api/memory", signal);
  const now = JSON.stringify(told.models.map((model) => [model.model, model.need_from, model.need_bytes]));
  if (now !== needs) {
    await lookAtModels(signal);
    needs = now;
  }
  showMemory(told, byId("pools"), byId("glance-memory"));
  showModels(told.models, metas, chatWith);
  const busy = told.models.some((model) => model.running + model.waiting > 0);
  showRunning(busy ? (await get("api/requests", signal)).requests : []);
  showLast();
}

function wake() {
  stale = true;
  nap?.abort();
}

// Each second, sooner when something has happened, not while nobody looks.
async function tick(signal) {
  let wait = TICK_MS;
  while (!signal.aborted) {
    stale = false;
    if (!document.hidden) {
      try {
        await look(signal);
        setLink("live", "Live");
        wait = TICK_MS;
      } catch (error) {
        if (signal.aborted || error.status === 401) return;
        setLink("failed", "Not reachable");
        wait = Math.min(wait * 2, 10000);
      }
    }
    nap = new AbortController();
    await pause(stale ? SOON_MS : wait, AbortSignal.any([signal, nap.signal]));
  }
}

// ---- what happens ----

function hear(signal) {
  let since = Infinity;
  const settled = () => performance.now() - since > SETTLE_MS;
  const onEvent = (event, anew) => {
    if (anew) {
      forgetEvents();
      setRows([]);
    }
    addEvent(event, !settled());
    if (event.type === "request") addRow(event.data);
    if (event.type === "config") needs = "";
    if (settled() && event.type !== "memory") wake();
  };
  const onState = (there) => {
    since = there ? performance.now() : Infinity;
    if (there) setTimeout(renderEvents, SETTLE_MS);
  };
  follow(onEvent, onState, signal);
}

// Streams are given up while nobody looks: a browser has few connections to one place.
function hearWhenSeen(signal) {
  let mine = null;
  const turn = () => {
    if (document.hidden) {
      mine?.abort();
      mine = null;
    } else if (!mine && !signal.aborted) {
      mine = new AbortController();
      forgetEvents();
      hear(AbortSignal.any([signal, mine.signal]));
      wake();
    }
  };
  document.addEventListener("visibilitychange", turn, { signal });
  turn();
}

async function start() {
  running?.abort();
  const mine = (running = new AbortController());
  try {
    setRows((await get("api/activity?limit=50", mine.signal)).rows);
  } catch (error) {
    if (error.status === 401 || mine.signal.aborted) return;
    setLink("failed", "Not reachable");
    await pause(2000, mine.signal);
    if (!mine.signal.aborted) start();
    return;
  }
  show(byId("key"), false);
  for (const id of ["content", "sections"]) show(byId(id), true);
  show(byId("forget"), hasKey());
  if (!begun) {
    begun = true;
    beginChat();
    beginPlan();
    beginLogs();
  }
  tick(mine.signal);
  hearWhenSeen(mine.signal);
}

beginTheme();
beginKey();
beginModels();
beginEvents();
start();
