// SPDX-License-Identifier: MIT
// A conversation with a model, as it comes.

import { eventsOf, open } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";

let talk = [];
let asking = null;

function bubble(role, name) {
  const text = el("div", { class: "text" });
  const foot = el("p", { class: "quiet" });
  const node = el("div", { class: `say ${role}` }, el("p", { class: "who" }, name), text, foot);
  byId("chat-log").append(node);
  node.scrollIntoView({ block: "nearest" });
  return { node, text, foot };
}

function follow() {
  const log = byId("chat-log");
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}

// The focus never stays on a button that can do nothing.
function busy(is) {
  const at = document.activeElement;
  byId("chat-send").disabled = is;
  byId("chat-stop").disabled = !is;
  if (is && at === byId("chat-send")) byId("chat-stop").focus();
  if (!is && at === byId("chat-stop")) byId("chat-text").focus();
  byId("chat-log").setAttribute("aria-busy", String(is));
}

function thinking(place) {
  const text = el("div", {});
  place.text.before(el("details", { class: "thought" }, el("summary", {}, "Thinking"), text));
  return text;
}

function numbers(timings, usage, began, n) {
  const tokens = usage?.completion_tokens ?? timings?.predicted_n ?? n;
  const speed = timings?.predicted_per_second ?? (tokens * 1000) / Math.max(1, performance.now() - began);
  return `${tokens} tokens, ${speed.toFixed(1)} tokens/s`;
}

async function answer(model, place, signal) {
  const body = { model, messages: talk, stream: true, stream_options: { include_usage: true }, max_tokens: Number(byId("chat-max").value) || 512 };
  const began = performance.now();
  let text = "";
  let thought = null;
  let n = 0;
  let timings = null;
  let usage = null;
  setText(place.foot, "waiting for its turn");
  try {
    const reply = await open("v1/chat/completions", { method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    for await (const event of eventsOf(reply)) {
      if (event.data === "[DONE]") break;
      const piece = JSON.parse(event.data);
      if (piece.error) throw new Error(piece.error.message || "the answer broke off");
      timings = piece.timings || timings;
      usage = piece.usage || usage;
      const delta = piece.choices?.[0]?.delta || {};
      if (delta.reasoning_content) {
        thought ||= thinking(place);
        thought.append(delta.reasoning_content);
      }
      if (!delta.content) continue;
      text += delta.content;
      n++;
      place.text.append(delta.content);
      setText(place.foot, `${n} pieces so far`);
      follow();
    }
    setText(place.foot, numbers(timings, usage, began, n));
    announce(`${model} has answered`);
  } catch (error) {
    if (!signal.aborted) throw error;
    setText(place.foot, `stopped after ${n} tokens`);
    announce("stopped");
  } finally {
    if (text) talk.push({ role: "assistant", content: text });
  }
}

async function send(event) {
  event?.preventDefault();
  const field = byId("chat-text");
  const words = field.value.trim();
  const model = byId("chat-model").value;
  if (asking || !words || !model) return;
  setText(byId("chat-error"), "");
  field.value = "";
  talk.push({ role: "user", content: words });
  bubble("user", "You").text.append(words);
  const place = bubble("model", model);
  asking = new AbortController();
  busy(true);
  try {
    await answer(model, place, asking.signal);
  } catch (error) {
    setText(byId("chat-error"), `${error.message}${error.code ? ` (${error.code})` : ""}`);
    setText(place.foot, "no answer");
    if (talk[talk.length - 1]?.role === "user") talk.pop();
    if (!field.value) field.value = words;
  }
  asking = null;
  busy(false);
}

export function chatWith(id) {
  byId("chat-model").value = id;
  byId("chat").scrollIntoView();
  byId("chat-text").focus({ preventScroll: true });
}

export function beginChat() {
  byId("chat-form").addEventListener("submit", send);
  byId("chat-stop").addEventListener("click", () => {
    asking?.abort();
    byId("chat-text").focus();
  });
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  byId("chat-clear").addEventListener("click", () => {
    asking?.abort();
    talk = [];
    byId("chat-log").replaceChildren();
    setText(byId("chat-error"), "");
  });
}
