// The page: which ladder and player are shown, and when each part is requested again.
// The address has both: #/LADDER or #/LADDER/PLAYER.

import { Refused, answerTime, follow, get, median, useToken } from "./api.js";
import { day, drawBars, drawCareer } from "./charts.js";
import { chooseSeason, showSeasons } from "./seasons.js";

const ROWS = 25;
const CHANGES = 200;
const BOARD_MS = 400;
const SPREAD_MS = 5_000;
const LADDERS_MS = 10_000;
const FIRST_LADDER_MS = 1_000;
const AGAIN_MS = 1_000;
const PASSING = ["not-ready", "busy", "index-unavailable", "unreachable"];
const SECONDS = 60;
const LAGS = 200;

const at = (id) => document.getElementById(id);
const shown = { ladder: "", player: "", cursor: undefined, around: undefined };
let tiers = []; // the names of the ladder's tiers, from the lowest to the highest
let stream;
let paused = false;

// --- parts of the page ---

async function showLadders() {
  const { ladders } = await get(["ladders"]);
  const select = at("ladder");
  if (String(ladders) === String([...select.options].map((each) => each.value))) return;
  select.replaceChildren(...ladders.map((each) => new Option(each, each)));
  select.value = shown.ladder;
  if (!shown.ladder && ladders.length) location.hash = addressOf(ladders[0]);
}

async function showBoard() {
  const { ladder, cursor, around } = shown;
  let page;
  try {
    page = await get(["ladders", ladder, "leaderboard"], { limit: ROWS, cursor, around });
  } catch (error) {
    if (around === undefined || !["not-listed", "unknown-player"].includes(error.code)) throw error;
    shown.around = undefined; // the player has left the list
    return showBoard();
  }
  if (ladder !== shown.ladder || cursor !== shown.cursor || around !== shown.around) return;
  at("board-percentile").hidden = page.rows.every((each) => each.percentile === undefined);
  at("board-tier").hidden = page.rows.every((each) => each.tier === undefined);
  const before = new Map([...at("board-rows").rows].map((row) => [row.dataset.player, row.dataset.rating]));
  const focused = document.activeElement?.closest?.("#board-rows tr")?.dataset.player;
  at("board-rows").replaceChildren(...page.rows.map((each) => boardRow(each, before)));
  if (focused !== undefined) {
    [...at("board-rows").rows].find((row) => row.dataset.player === focused)?.querySelector("a").focus();
  }
  at("board-caption").textContent = `${page.listed.toLocaleString("en")} players on ${ladder}`;
  at("board-first").disabled = cursor === undefined && around === undefined;
  at("board-next").disabled = page.next === null;
  at("board-next").dataset.cursor = page.next ?? "";
}

function boardRow({ rank, player, rating, percentile, tier, previous_tier: previous }, before) {
  const row = document.createElement("tr");
  Object.assign(row.dataset, { player, rating });
  if (before.has(player) && before.get(player) !== String(rating)) row.className = "moved";
  if (player === shown.player) row.classList.add("chosen");
  const link = document.createElement("a");
  link.href = addressOf(shown.ladder, player);
  link.textContent = player;
  row.append(cell(rank.toLocaleString("en"), "number"), cell(link), cell(points(rating), "number"));
  if (percentile !== undefined) row.append(cell(`${percentile.toFixed(1)} %`, "number"));
  if (tier !== undefined) row.append(tierCell(tier, previous));
  return row;
}

function tierCell(tier, previous) {
  const found = cell(tier ?? "–");
  const step = tiers.indexOf(tier) - tiers.indexOf(previous);
  if (tier && previous && step) {
    const sign = document.createElement("span");
    sign.textContent = step > 0 ? "▲" : "▼";
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", `${step > 0 ? "promoted" : "demoted"} from ${previous}`);
    found.append("\u00a0", sign);
  }
  return found;
}

/** Why a player is not listed, in words. */
function reason({ rule, value, bound }) {
  if (rule === "idle_days") return `not listed: ${value.toFixed(0)} days without a round`;
  if (rule === "max_sigma") return `not listed: ± ${points(value)} is more than ± ${points(bound)}`;
  return `${rule === "provisional" ? "provisional" : "not listed"}: ${value} of ${bound} rounds`;
}

async function showPlayer() {
  const { ladder, player } = shown;
  if (at("player-name").textContent !== player) at("player").hidden = true;
  if (!player) return;
  const [found, history] = await Promise.all([
    get(["ladders", ladder, "players", player]),
    get(["ladders", ladder, "players", player, "history"], { limit: CHANGES }),
  ]);
  if (ladder !== shown.ladder || player !== shown.player) return;
  at("player").hidden = false;
  at("player-name").textContent = player;
  setFacts(at("player-facts"), {
    Rating: points(found.rating),
    Rank: found.rank === null ? reason(found.unlisted) : `${found.rank.toLocaleString("en")} of ${found.listed.toLocaleString("en")}`,
    "At least as good as": found.percentile === null ? "–" : `${found.percentile.toFixed(1)} %`,
    Skill: `${points(found.mu)} ± ${points(found.sigma)}`,
    ...(found.tier && { Tier: found.tier }),
    Rounds: found.rounds.toLocaleString("en"),
    "Last round": day(found.completed_at),
  });
  drawCareer(at("player-chart"), [...history.changes].reverse(), player);
  at("player-changes").tBodies[0].replaceChildren(...history.changes.map(changeRow));
  at("player-around").hidden = found.rank === null;
  at("player-close").href = addressOf(ladder);
}

function changeRow(change) {
  const row = document.createElement("tr");
  const cause = change.cause === "round-completed" ? `round ${change.round_id}` : change.cause;
  const delta = change.rating - change.previous_rating;
  row.append(
    cell(day(change.completed_at)), cell(cause), cell(change.rank ?? "–", "number"),
    cell(points(change.rating), "number"), cell(`${delta < 0 ? "−" : "+"}${points(Math.abs(delta))}`, "number"),
  );
  return row;
}

async function showSpread() {
  const { ladder } = shown;
  const { distribution, listed, players: all, tiers: known } = await get(["ladders", ladder]);
  if (ladder !== shown.ladder) return;
  const others = all - listed;
  at("board-others").textContent = others > 0
    ? `${others.toLocaleString("en")} more ${others === 1 ? "player is" : "players are"} not listed. Look one up by name, to see why.`
    : "";
  const names = known.map((each) => each.name);
  if (String(names) !== String(tiers)) {
    tiers = names;
    soon.board();
  }
  const spans = filled(distribution);
  drawBars(
    at("spread-chart"),
    spans.map(([low, high, players]) => [players, `${low} to ${high}: ${players}`]),
    spans.length ? [String(spans[0][0]), String(spans.at(-1)[1])] : [],
    `Ratings of ${listed} listed players`,
  );
  at("spread-table").tBodies[0].replaceChildren(...spans.map(([low, high, players]) => {
    const row = document.createElement("tr");
    row.append(cell(`${low} to ${high}`), cell(players.toLocaleString("en"), "number"));
    return row;
  }));
}

/** The bins with those between that have nobody. */
function filled(bins) {
  const found = [];
  for (const { at_least: low, below, players } of bins) {
    for (let from = found.at(-1)?.[1] ?? low; from < low; from += below - low) {
      found.push([from, from + below - low, 0]);
    }
    found.push([low, below, players]);
  }
  return found;
}

const pulse = { counts: new Map(), lags: [] };

function showPulse() {
  const now = Math.floor(Date.now() / 1000);
  for (const second of pulse.counts.keys()) if (second < now - SECONDS) pulse.counts.delete(second);
  const counts = Array.from({ length: SECONDS }, (_, i) => pulse.counts.get(now - SECONDS + i) ?? 0);
  const recent = counts.slice(-10).reduce((sum, each) => sum + each, 0) / 10;
  const lag = median(pulse.lags);
  const answers = answerTime();
  setFacts(at("pulse-facts"), {
    Changes: `${recent.toFixed(1)} a second`,
    "From a round's end to here": lag === undefined ? "–" : span(lag),
    "Answer of the API": answers === undefined ? "–" : `${answers.toFixed(0)} ms`,
  });
  drawBars(at("pulse-chart"), counts.map((each) => [each]), ["a minute ago", "now"],
    `${recent.toFixed(1)} changes a second in the last ten seconds`);
}

function span(ms) {
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  return ms < 86_400_000 ? `${Math.round(ms / 1000).toLocaleString("en")} s` : "more than a day";
}

// --- small pieces ---

const points = (value) => value.toFixed(0);
const addressOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

function cell(content, kind = "") {
  const found = document.createElement("td");
  found.className = kind;
  found.append(content);
  return found;
}

function setFacts(list, facts) {
  list.replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    const description = document.createElement("dd");
    [term.textContent, description.textContent] = [name, value];
    pair.append(term, description);
    return pair;
  }));
}

const troubles = new Map();

/**
 * Shows a part of the page, or says why it cannot be shown; nothing else stops. Returns whether it is
 * to be tried again, even if nothing changes until then.
 */
async function attempt(part) {
  let again = false;
  try {
    await part();
    troubles.delete(part);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    troubles.set(part, error);
    again = PASSING.includes(error.code);
  }
  const all = [...troubles.values()];
  const others = all.filter((each) => each.code !== "unauthorized");
  at("token").hidden = all.length === others.length;
  at("trouble").hidden = !others.length;
  const text = [...new Set(others.map((each) => each.message))].join(" ");
  if (at("trouble").textContent !== text) at("trouble").textContent = text;
  return again;
}

/** Calls `work` soon, and not more often than every `ms`, nor twice at once. */
function throttled(work, ms) {
  let wanted = false;
  let busy = false;
  return async function ask() {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted) {
      wanted = false;
      const again = await attempt(work);
      await new Promise((done) => setTimeout(done, again ? Math.max(ms, AGAIN_MS) : ms));
      wanted ||= again;
    }
    busy = false;
  };
}

const soon = {
  board: throttled(showBoard, BOARD_MS),
  player: throttled(showPlayer, BOARD_MS),
  spread: throttled(showSpread, SPREAD_MS),
  seasons: throttled(() => showSeasons(shown.ladder), BOARD_MS),
};

// --- what happens ---

function onChange(change) {
  const now = Date.now();
  const second = Math.floor(now / 1000);
  pulse.counts.set(second, (pulse.counts.get(second) ?? 0) + 1);
  if (!change.correction) pulse.lags.push(now - Date.parse(change.completed_at));
  pulse.lags.splice(0, pulse.lags.length - LAGS);
  soon.board();
  soon.spread();
  if (change.player === shown.player) soon.player();
}

function showAll() {
  soon.board();
  soon.spread();
  soon.player();
}

function setStatus(text) {
  at("status").textContent = text;
  at("status").className = text;
}

function connect() {
  stream?.close();
  stream = undefined;
  if (!shown.ladder || paused) return;
  stream = follow(shown.ladder, { onChange, reset: showAll, state: setStatus });
}

function openAddress() {
  const [ladder = "", player = ""] = location.hash.replace(/^#\//, "").split("/").map(decoded);
  if (!location.hash.startsWith("#/") && shown.ladder) return; // a link within the page
  const moved = ladder !== shown.ladder;
  Object.assign(shown, { ladder, player });
  if (!ladder) return;
  at("ladder").value = ladder;
  document.title = player ? `${player} · Ratings` : `${ladder} · Ratings`;
  if (moved) {
    Object.assign(shown, { cursor: undefined, around: undefined });
    pulse.lags.length = 0;
    pulse.counts.clear();
    connect();
    soon.spread();
    soon.seasons();
  }
  soon.board();
  attempt(showPlayer).then(() => at("player").hidden || at("player-name").focus());
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function lookForLadders() {
  await attempt(showLadders);
  if (shown.ladder && !paused) soon.seasons(); // one may have ended
  setTimeout(lookForLadders, shown.ladder ? LADDERS_MS : FIRST_LADDER_MS);
}

function turnSeasonTo(season, cursor) {
  chooseSeason(season, cursor);
  soon.seasons();
}

function turnTo(cursor, around) {
  Object.assign(shown, { cursor, around });
  soon.board();
}

at("ladder").addEventListener("change", (event) => { location.hash = addressOf(event.target.value); });
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = addressOf(shown.ladder, event.target.player.value.trim());
});
at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(event.target.token.value);
  attempt(showLadders).then(connect).then(showAll);
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  pulse.counts.clear();
  at("pause").setAttribute("aria-pressed", String(paused));
  if (paused) setStatus("paused");
  connect();
});
at("board-first").addEventListener("click", () => turnTo(undefined, undefined));
at("board-next").addEventListener("click", (event) => turnTo(event.target.dataset.cursor, undefined));
at("past-season").addEventListener("change", (event) => turnSeasonTo(event.target.value));
at("past-first").addEventListener("click", () => turnSeasonTo(at("past-season").value));
at("past-next").addEventListener("click", (event) => turnSeasonTo(at("past-season").value, event.target.dataset.cursor));
at("player-around").addEventListener("click", (event) => {
  event.preventDefault();
  turnTo(undefined, shown.player);
  at("board").scrollIntoView();
});
addEventListener("hashchange", openAddress);
addEventListener("resize", () => shown.ladder && showAll());

openAddress();
lookForLadders();
setInterval(() => paused || showPulse(), 1000);
showPulse();
