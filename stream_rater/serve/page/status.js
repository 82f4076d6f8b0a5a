// The numbers of operators, as this page sees them: the rate of changes, how long they take from a
// round's end to here, and how long the API takes to answer.

import { Refused, answerTime, follow, get, median, useToken } from "./api.js";
import { drawBars } from "./charts.js";
import { at, count, made, setFacts } from "./dom.js";

const SECONDS = 60;
const LAGS = 200;
const LADDERS_MS = 2_000;

const counts = new Map();
const lags = [];
let stream;
let followed = "";

function onChange(change) {
  const now = Date.now();
  const second = Math.floor(now / 1000);
  counts.set(second, (counts.get(second) ?? 0) + 1);
  if (!change.correction) lags.push(now - Date.parse(change.completed_at));
  lags.splice(0, lags.length - LAGS);
}

function showPulse() {
  const now = Math.floor(Date.now() / 1000);
  for (const second of counts.keys()) if (second < now - SECONDS) counts.delete(second);
  const seen = Array.from({ length: SECONDS }, (_, i) => counts.get(now - SECONDS + i) ?? 0);
  const recent = seen.slice(-10).reduce((sum, each) => sum + each, 0) / 10;
  const [lag, answers] = [median(lags), answerTime()];
  setFacts(at("pulse-facts"), {
    Changes: `${recent.toFixed(1)} a second`,
    "From a round's end to here": lag === undefined ? "–" : span(lag),
    "Answer of the API": answers === undefined ? "–" : `${answers.toFixed(0)} ms`,
  });
  drawBars(at("pulse-chart"), seen.map((each) => [each]), ["a minute ago", "now"],
    `${recent.toFixed(1)} changes a second in the last ten seconds`);
}

function span(ms) {
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  return ms < 86_400_000 ? `${count(Math.round(ms / 1000))} s` : "more than a day";
}

async function showReady() {
  const answer = await fetch("readyz").catch(() => null);
  const text = answer ? (await answer.text()).trim() : "it cannot be reached";
  at("ready").textContent = answer?.ok ? "ready" : `not ready: ${text}`;
}

async function look() {
  await showReady();
  try {
    const { ladders } = await get(["ladders"]);
    const select = at("ladder");
    if (String(ladders) !== String([...select.options].map((each) => each.value))) {
      select.replaceChildren(...ladders.map((each) => new Option(each, each)));
    }
    if (!followed && ladders.length) choose(ladders[0]);
    select.value = followed;
    at("token").hidden = true;
    at("trouble").hidden = true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    at("token").hidden = error.code !== "unauthorized";
    at("trouble").hidden = error.code === "unauthorized";
    at("trouble").replaceChildren(made("span", "", error.message));
  }
  setTimeout(look, LADDERS_MS);
}

function choose(ladder) {
  stream?.close();
  followed = ladder;
  counts.clear();
  lags.length = 0;
  stream = follow(ladder, { onChange, reset() {}, state(text) { at("status").textContent = text; } });
}

at("ladder").addEventListener("change", (event) => choose(event.target.value));
at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(event.target.token.value);
  followed = "";
});
setInterval(showPulse, 1000);
showPulse();
look();
